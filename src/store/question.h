/* The statements of the store that are not of one row (store/rows.h). */
#pragma once

/* Prepared once, at their first use, and kept. */
enum question {
	Q_BEGIN,
	Q_COMMIT,
	Q_STAMP,
	Q_TENANT_NEXT,
	Q_EXEC_FINISH,
	Q_EXEC_GROUP,
	Q_IDEM_FIND,
	Q_IDEM_PRUNE,
	Q_NET_NAME_CLEAR,
	Q_BUILD_CACHE_GET,
	Q_COUNT
};
