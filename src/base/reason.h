/*
 * Why a request was refused, for programs: `reason` of every error. One table gives the kind, the HTTP status, the word and
 * what it means; the API's description, the documents and both SDKs are made from it (scripts/reasons.py), so a line is
 * X(NAME, KIND, status, "word", "meaning") and nothing else.
 *
 * The first reason of a kind is the one of errors that name only the kind. The numbers travel in the warden's messages
 * within one version; the words are part of the API and do not change.
 */
#pragma once

/* clang-format off */
#define ERR_REASONS(X) \
	X(INTERNAL, INTERNAL, 500, "internal", "an error in the daemon; its log has more") \
	X(BAD_REQUEST, INVALID, 400, "bad_request", "the request is not valid") \
	X(BAD_JSON, INVALID, 400, "bad_json", "the body is not JSON, or not an object") \
	X(BAD_FIELD, INVALID, 400, "bad_field", "a field or parameter has an invalid value") \
	X(UNKNOWN_FIELD, INVALID, 400, "unknown_field", "a field or parameter that does not exist, or that this call does not have") \
	X(BAD_RANGE, INVALID, 416, "bad_range", "the Range begins after the end of the file") \
	X(EXPECTATION, INVALID, 417, "expectation", "the header Expect has a value other than 100-continue") \
	X(UPGRADE_REQUIRED, INVALID, 426, "upgrade_required", "this path is a WebSocket") \
	X(TOKEN_INVALID, UNAUTHORIZED, 401, "token_invalid", "the token is unknown or was revoked") \
	X(TOKEN_MISSING, UNAUTHORIZED, 401, "token_missing", "the call has no token") \
	X(TOKEN_EXPIRED, UNAUTHORIZED, 401, "token_expired", "the token has expired") \
	X(NOT_ALLOWED, DENIED, 403, "not_allowed", "this caller may not do that on this host") \
	X(SCOPE_TOO_SMALL, DENIED, 403, "scope_too_small", "the call needs a token with a larger scope") \
	X(ADMIN_ONLY, DENIED, 403, "admin_only", "only an admin may do that") \
	X(HOST_FORBIDS, DENIED, 403, "host_forbids", "the configuration of the host does not allow it") \
	X(REGISTRY_DENIES, DENIED, 403, "registry_denies", "the registry refuses access") \
	X(PERMISSION, DENIED, 403, "permission", "the user in the sandbox lacks permission for the path") \
	X(NOT_FOUND, NOT_FOUND, 404, "not_found", "it does not exist, or belongs to another tenant") \
	X(PATH_UNKNOWN, NOT_FOUND, 404, "path_unknown", "the API has no resource at this path") \
	X(SANDBOX_MISSING, NOT_FOUND, 404, "sandbox_missing", "no such sandbox") \
	X(EXEC_MISSING, NOT_FOUND, 404, "exec_missing", "no such exec in this sandbox") \
	X(CONTEXT_MISSING, NOT_FOUND, 404, "context_missing", "no such context in this sandbox") \
	X(FILE_MISSING, NOT_FOUND, 404, "file_missing", "no such file or folder in the sandbox") \
	X(CHECKPOINT_MISSING, NOT_FOUND, 404, "checkpoint_missing", "no such checkpoint") \
	X(TEMPLATE_MISSING, NOT_FOUND, 404, "template_missing", "no such template") \
	X(POOL_MISSING, NOT_FOUND, 404, "pool_missing", "no such pool") \
	X(IMAGE_MISSING, NOT_FOUND, 404, "image_missing", "no such image, or a layer of it was removed") \
	X(OPERATION_MISSING, NOT_FOUND, 404, "operation_missing", "no such operation") \
	X(SECRET_MISSING, NOT_FOUND, 404, "secret_missing", "no such secret") \
	X(NETWORK_SET_MISSING, NOT_FOUND, 404, "network_set_missing", "no such set of network rules") \
	X(REGISTRY_UNKNOWN, NOT_FOUND, 404, "registry_unknown", "the name of the registry cannot be resolved, or the policy refuses it") \
	X(DEVICE_MISSING, NOT_FOUND, 404, "device_missing", "the machine has no such device, or a node or file of it is missing") \
	X(TENANT_MISSING, NOT_FOUND, 404, "tenant_missing", "no such tenant") \
	X(TOKEN_ID_MISSING, NOT_FOUND, 404, "token_id_missing", "no token with this id") \
	X(METHOD, METHOD, 405, "method", "this path does not have the method") \
	X(CONFLICT, CONFLICT, 409, "conflict", "the state does not allow the call") \
	X(NAME_TAKEN, CONFLICT, 409, "name_taken", "the name is in use") \
	X(KEY_REUSED, CONFLICT, 409, "key_reused", "the Idempotency-Key was used for another request, or its first request is still in progress") \
	X(MADE_WAS_REMOVED, CONFLICT, 409, "made_was_removed", "what the first request with this Idempotency-Key made has been removed") \
	X(SANDBOX_PAUSED, CONFLICT, 409, "sandbox_paused", "the sandbox is paused: resume it") \
	X(SANDBOX_HIBERNATED, CONFLICT, 409, "sandbox_hibernated", "the sandbox is hibernated: resume it") \
	X(SANDBOX_STOPPED, CONFLICT, 409, "sandbox_stopped", "the sandbox is stopped: start it") \
	X(WRONG_STATE, CONFLICT, 409, "wrong_state", "the state of the sandbox does not allow the call") \
	X(BUSY, CONFLICT, 409, "busy", "another call changes the same thing: try again") \
	X(CHANGED_MEANWHILE, CONFLICT, 409, "changed_meanwhile", "it ended, was removed or was changed during the call") \
	X(IN_USE, CONFLICT, 409, "in_use", "something else needs it") \
	X(ENDED, CONFLICT, 409, "ended", "the exec or operation has ended") \
	X(STDIN_CLOSED, CONFLICT, 409, "stdin_closed", "the stdin of the exec is not open") \
	X(NO_TERMINAL, CONFLICT, 409, "no_terminal", "the exec has no terminal") \
	X(NO_WARM_PYTHON, CONFLICT, 409, "no_warm_python", "no warm Python runs in the sandbox") \
	X(FILES_IN_MEMORY, CONFLICT, 409, "files_in_memory", "the sandbox has its files in memory, and would lose them") \
	X(FILE_EXISTS, CONFLICT, 409, "file_exists", "there is already a file or folder of this name") \
	X(FOLDER_NOT_EMPTY, CONFLICT, 409, "folder_not_empty", "the folder has entries: remove it with recursive=1") \
	X(NOT_A_FORK, CONFLICT, 409, "not_a_fork", "the sandbox is not a fork of the other one") \
	X(PROMOTE_CONFLICT, CONFLICT, 409, "promote_conflict", "both sandboxes have changed the same paths differently") \
	X(CANCELED, CONFLICT, 409, "canceled", "a caller canceled it") \
	X(TOO_LARGE, TOO_LARGE, 413, "too_large", "the request, or a part of it, exceeds a limit") \
	X(BODY_TOO_LARGE, TOO_LARGE, 413, "body_too_large", "the body exceeds its limit") \
	X(ARGUMENT_TOO_LONG, TOO_LARGE, 413, "argument_too_long", "arguments and environment, or one of them, exceed the limit of the kernel") \
	X(PATH_TOO_LONG, TOO_LARGE, 414, "path_too_long", "the path of the request is too long") \
	X(HEADER_TOO_LARGE, TOO_LARGE, 431, "header_too_large", "the header of the request is too large") \
	X(REFUSED, REFUSED, 422, "refused", "the request is valid, but failed in the sandbox") \
	X(PROGRAM_MISSING, REFUSED, 422, "program_missing", "no such program in the sandbox, or its interpreter is missing") \
	X(NOT_EXECUTABLE, REFUSED, 422, "not_executable", "the user may not execute the program") \
	X(NOT_A_PROGRAM, REFUSED, 422, "not_a_program", "the file is executable, but the kernel cannot run its format") \
	X(FOLDER_MISSING, REFUSED, 422, "folder_missing", "the working folder does not exist") \
	X(FOLDER_PERMISSION, REFUSED, 422, "folder_permission", "the user may not enter the working folder") \
	X(NOT_A_FOLDER, REFUSED, 422, "not_a_folder", "a part of the path is not a folder") \
	X(IS_A_FOLDER, REFUSED, 422, "is_a_folder", "the path is a folder") \
	X(NOT_A_FILE, REFUSED, 422, "not_a_file", "the path is a device, a socket or a FIFO") \
	X(READ_ONLY, REFUSED, 422, "read_only", "the path is on a read-only file system") \
	X(DISK_FULL, REFUSED, 422, "disk_full", "the disk of the sandbox is full") \
	X(NAME_TOO_LONG, REFUSED, 422, "name_too_long", "the path, or a part of it, is too long") \
	X(LINK_LOOP, REFUSED, 422, "link_loop", "the path leads through too many links") \
	X(WORKER_KILLED, REFUSED, 422, "worker_killed", "the process that works on the file was killed in the sandbox") \
	X(USER_UNKNOWN, REFUSED, 422, "user_unknown", "the sandbox or image has no such user") \
	X(GROUP_UNKNOWN, REFUSED, 422, "group_unknown", "the sandbox has no such group") \
	X(USER_INVALID, REFUSED, 422, "user_invalid", "the user or group exists, but cannot be used in a sandbox") \
	X(PROCESS_LIMIT, REFUSED, 422, "process_limit", "the sandbox has reached its limit of processes") \
	X(MEMORY_FULL, REFUSED, 422, "memory_full", "the memory of the sandbox is full") \
	X(TERMINAL_LIMIT, REFUSED, 422, "terminal_limit", "all terminals of the sandbox are in use") \
	X(CANNOT_CARRY, REFUSED, 422, "cannot_carry", "processes of the sandbox cannot be saved or restored") \
	X(START_FAILED, REFUSED, 422, "start_failed", "a warm process or a context did not become ready") \
	X(COMMAND_FAILED, REFUSED, 422, "command_failed", "a command of the build failed") \
	X(DAMAGED, REFUSED, 422, "damaged", "stored data is damaged, or missing") \
	X(ARCHIVE_INVALID, REFUSED, 422, "archive_invalid", "the archive or exported file cannot be used") \
	X(SIGNATURE, REFUSED, 422, "signature", "the file is not signed, or its signature is not trusted or does not match") \
	X(IMAGE_INVALID, REFUSED, 422, "image_invalid", "the image does not follow its own description, or the standard") \
	X(WRONG_PLATFORM, REFUSED, 422, "wrong_platform", "the image is for another processor or system") \
	X(REGISTRY_UNTRUSTED, REFUSED, 422, "registry_untrusted", "the registry has no TLS, or a certificate that is not trusted") \
	X(IMAGE_AMBIGUOUS, REFUSED, 422, "image_ambiguous", "the archive has several images, and the request names none") \
	X(MADE_ELSEWHERE, REFUSED, 422, "made_elsewhere", "it was made with another program, kernel or image, and cannot be restored here") \
	X(HOST_TOO_SMALL, REFUSED, 422, "host_too_small", "the host is smaller than what was asked for") \
	X(IMAGE_NEEDED, REFUSED, 422, "image_needed", "it is based on an image that is not here") \
	X(DEVICE_UNUSABLE, REFUSED, 422, "device_unusable", "the description of the device is wrong, or needs what sandboxes do not have") \
	X(NOT_COMPARABLE, REFUSED, 422, "not_comparable", "the two states have different images or isolation") \
	X(QUOTA, QUOTA, 429, "quota", "a quota of the tenant is used up") \
	X(LIMIT, QUOTA, 429, "limit", "a fixed limit of the daemon is reached") \
	X(RATE, RATE, 429, "rate", "too many calls with this token") \
	X(REGISTRY_RATE, RATE, 429, "registry_rate", "the registry limits how often it is asked") \
	X(UNSUPPORTED, UNSUPPORTED, 501, "unsupported", "this host or version does not have it") \
	X(HTTP_VERSION, UNSUPPORTED, 505, "http_version", "the server speaks HTTP/1.1 only") \
	X(SANDBOX_LOST, LOST, 502, "sandbox_lost", "the sandbox ended") \
	X(PORT_CLOSED, LOST, 502, "port_closed", "no server listens on the port, or it broke off") \
	X(CONTEXT_ENDED, LOST, 502, "context_ended", "the context ended") \
	X(REGISTRY_FAILED, LOST, 502, "registry_failed", "the registry's answer cannot be used") \
	X(SERVICE_LOST, LOST, 502, "service_lost", "a part of the daemon does not answer: see its log") \
	X(NO_RESOURCES, EXHAUSTED, 503, "no_resources", "the host or the daemon has no free resources") \
	X(NO_HOST_SPACE, EXHAUSTED, 503, "no_host_space", "the disk of the host is full or almost full") \
	X(DEVICE_TAKEN, EXHAUSTED, 503, "device_taken", "other sandboxes have the device, or all of its kind") \
	X(STOPPING, EXHAUSTED, 503, "stopping", "the daemon is stopping") \
	X(NO_PROGRESS, TIMEOUT, 504, "no_progress", "the work made no progress in time") \
	X(PORT_SILENT, TIMEOUT, 504, "port_silent", "the server on the port did not answer in time") \
	X(REGISTRY_SILENT, TIMEOUT, 504, "registry_silent", "the registry did not answer in time")
/* clang-format on */

/* They begin behind all kinds, so that one number says either a kind or a reason. */
enum err_reason {
	WHY_FIRST_ = 63,
#define X(name, kind, status, word, meaning) WHY_##name,
	ERR_REASONS(X)
#undef X
		WHY_END_
};
