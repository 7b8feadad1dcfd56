/* Made from src/base/reason.h by scripts/reasons.py. */

/** What the server says about an error to programs: `reason` of a ClocheError. */
export const REASONS = {
  /** 500: an error in the daemon; its log has more. */
  internal: 500,
  /** 400: the request is not valid. */
  bad_request: 400,
  /** 400: the body is not JSON, or not an object. */
  bad_json: 400,
  /** 400: a field or parameter has an invalid value. */
  bad_field: 400,
  /** 400: a field or parameter that does not exist, or that this call does not have. */
  unknown_field: 400,
  /** 416: the Range begins after the end of the file. */
  bad_range: 416,
  /** 417: the header Expect has a value other than 100-continue. */
  expectation: 417,
  /** 426: this path is a WebSocket. */
  upgrade_required: 426,
  /** 401: the token is unknown or was revoked. */
  token_invalid: 401,
  /** 401: the call has no token. */
  token_missing: 401,
  /** 401: the token has expired. */
  token_expired: 401,
  /** 403: this caller may not do that on this host. */
  not_allowed: 403,
  /** 403: the call needs a token with a larger scope. */
  scope_too_small: 403,
  /** 403: only an admin may do that. */
  admin_only: 403,
  /** 403: the configuration of the host does not allow it. */
  host_forbids: 403,
  /** 403: the registry refuses access. */
  registry_denies: 403,
  /** 403: the user in the sandbox lacks permission for the path. */
  permission: 403,
  /** 404: it does not exist, or belongs to another tenant. */
  not_found: 404,
  /** 404: the API has no resource at this path. */
  path_unknown: 404,
  /** 404: no such sandbox. */
  sandbox_missing: 404,
  /** 404: no such exec in this sandbox. */
  exec_missing: 404,
  /** 404: no such context in this sandbox. */
  context_missing: 404,
  /** 404: no such file or folder in the sandbox. */
  file_missing: 404,
  /** 404: no such checkpoint. */
  checkpoint_missing: 404,
  /** 404: no such template. */
  template_missing: 404,
  /** 404: no such pool. */
  pool_missing: 404,
  /** 404: no such image, or a layer of it was removed. */
  image_missing: 404,
  /** 404: no such operation. */
  operation_missing: 404,
  /** 404: no such secret. */
  secret_missing: 404,
  /** 404: no such set of network rules. */
  network_set_missing: 404,
  /** 404: the name of the registry cannot be resolved, or the policy refuses it. */
  registry_unknown: 404,
  /** 404: the machine has no such device, or a node or file of it is missing. */
  device_missing: 404,
  /** 404: no such tenant. */
  tenant_missing: 404,
  /** 404: no token with this id. */
  token_id_missing: 404,
  /** 405: this path does not have the method. */
  method: 405,
  /** 409: the state does not allow the call. */
  conflict: 409,
  /** 409: the name is in use. */
  name_taken: 409,
  /** 409: the Idempotency-Key was used for another request, or its first request is still in progress. */
  key_reused: 409,
  /** 409: what the first request with this Idempotency-Key made has been removed. */
  made_was_removed: 409,
  /** 409: the sandbox is paused: resume it. */
  sandbox_paused: 409,
  /** 409: the sandbox is hibernated: resume it. */
  sandbox_hibernated: 409,
  /** 409: the sandbox is stopped: start it. */
  sandbox_stopped: 409,
  /** 409: the state of the sandbox does not allow the call. */
  wrong_state: 409,
  /** 409: another call changes the same thing: try again. */
  busy: 409,
  /** 409: it ended, was removed or was changed during the call. */
  changed_meanwhile: 409,
  /** 409: something else needs it. */
  in_use: 409,
  /** 409: the exec or operation has ended. */
  ended: 409,
  /** 409: the stdin of the exec is not open. */
  stdin_closed: 409,
  /** 409: the exec has no terminal. */
  no_terminal: 409,
  /** 409: no warm Python runs in the sandbox. */
  no_warm_python: 409,
  /** 409: the sandbox has its files in memory, and would lose them. */
  files_in_memory: 409,
  /** 409: there is already a file or folder of this name. */
  file_exists: 409,
  /** 409: the folder has entries: remove it with recursive=1. */
  folder_not_empty: 409,
  /** 409: the sandbox is not a fork of the other one. */
  not_a_fork: 409,
  /** 409: both sandboxes have changed the same paths differently. */
  promote_conflict: 409,
  /** 409: a caller canceled it. */
  canceled: 409,
  /** 413: the request, or a part of it, exceeds a limit. */
  too_large: 413,
  /** 413: the body exceeds its limit. */
  body_too_large: 413,
  /** 413: arguments and environment, or one of them, exceed the limit of the kernel. */
  argument_too_long: 413,
  /** 414: the path of the request is too long. */
  path_too_long: 414,
  /** 431: the header of the request is too large. */
  header_too_large: 431,
  /** 422: the request is valid, but failed in the sandbox. */
  refused: 422,
  /** 422: no such program in the sandbox, or its interpreter is missing. */
  program_missing: 422,
  /** 422: the user may not execute the program. */
  not_executable: 422,
  /** 422: the file is executable, but the kernel cannot run its format. */
  not_a_program: 422,
  /** 422: the working folder does not exist. */
  folder_missing: 422,
  /** 422: the user may not enter the working folder. */
  folder_permission: 422,
  /** 422: a part of the path is not a folder. */
  not_a_folder: 422,
  /** 422: the path is a folder. */
  is_a_folder: 422,
  /** 422: the path is a device, a socket or a FIFO. */
  not_a_file: 422,
  /** 422: the path is on a read-only file system. */
  read_only: 422,
  /** 422: the disk of the sandbox is full. */
  disk_full: 422,
  /** 422: the path, or a part of it, is too long. */
  name_too_long: 422,
  /** 422: the path leads through too many links. */
  link_loop: 422,
  /** 422: the process that works on the file was killed in the sandbox. */
  worker_killed: 422,
  /** 422: the sandbox or image has no such user. */
  user_unknown: 422,
  /** 422: the sandbox has no such group. */
  group_unknown: 422,
  /** 422: the user or group exists, but cannot be used in a sandbox. */
  user_invalid: 422,
  /** 422: the sandbox has reached its limit of processes. */
  process_limit: 422,
  /** 422: the memory of the sandbox is full. */
  memory_full: 422,
  /** 422: all terminals of the sandbox are in use. */
  terminal_limit: 422,
  /** 422: processes of the sandbox cannot be saved or restored. */
  cannot_carry: 422,
  /** 422: a warm process or a context did not become ready. */
  start_failed: 422,
  /** 422: a command of the build failed. */
  command_failed: 422,
  /** 422: stored data is damaged, or missing. */
  damaged: 422,
  /** 422: the archive or exported file cannot be used. */
  archive_invalid: 422,
  /** 422: the file is not signed, or its signature is not trusted or does not match. */
  signature: 422,
  /** 422: the image does not follow its own description, or the standard. */
  image_invalid: 422,
  /** 422: the image is for another processor or system. */
  wrong_platform: 422,
  /** 422: the registry has no TLS, or a certificate that is not trusted. */
  registry_untrusted: 422,
  /** 422: the archive has several images, and the request names none. */
  image_ambiguous: 422,
  /** 422: it was made with another program, kernel or image, and cannot be restored here. */
  made_elsewhere: 422,
  /** 422: the host is smaller than what was asked for. */
  host_too_small: 422,
  /** 422: it is based on an image that is not here. */
  image_needed: 422,
  /** 422: the description of the device is wrong, or needs what sandboxes do not have. */
  device_unusable: 422,
  /** 422: the two states have different images or isolation. */
  not_comparable: 422,
  /** 429: a quota of the tenant is used up. */
  quota: 429,
  /** 429: a fixed limit of the daemon is reached. */
  limit: 429,
  /** 429: too many calls with this token. */
  rate: 429,
  /** 429: the registry limits how often it is asked. */
  registry_rate: 429,
  /** 501: this host or version does not have it. */
  unsupported: 501,
  /** 505: the server speaks HTTP/1.1 only. */
  http_version: 505,
  /** 502: the sandbox ended. */
  sandbox_lost: 502,
  /** 502: no server listens on the port, or it broke off. */
  port_closed: 502,
  /** 502: the context ended. */
  context_ended: 502,
  /** 502: the registry's answer cannot be used. */
  registry_failed: 502,
  /** 502: a part of the daemon does not answer: see its log. */
  service_lost: 502,
  /** 503: the host or the daemon has no free resources. */
  no_resources: 503,
  /** 503: the disk of the host is full or almost full. */
  no_host_space: 503,
  /** 503: other sandboxes have the device, or all of its kind. */
  device_taken: 503,
  /** 503: the daemon is stopping. */
  stopping: 503,
  /** 504: the work made no progress in time. */
  no_progress: 504,
  /** 504: the server on the port did not answer in time. */
  port_silent: 504,
  /** 504: the registry did not answer in time. */
  registry_silent: 504,
} as const;

export type Reason = keyof typeof REASONS;
