#pragma once
/* The default of every limit on what a client, a model or a guest can grow. Each has a config key
 * of the same name in lower case under "limits" in cay.json, a test that reaches it, and an error
 * that names it. */

#define LIMIT_HEAD_BYTES         (16 * 1024)
#define LIMIT_BODY_BYTES         (10 * 1024 * 1024)
#define LIMIT_CONNECTIONS        4096
#define LIMIT_DESCRIPTORS_MIN    256 /* a server does not start with fewer */
#define LIMIT_HEADER_TIMEOUT_MS  10000
#define LIMIT_BODY_TIMEOUT_MS    30000
#define LIMIT_IDLE_TIMEOUT_MS    75000
#define LIMIT_WRITE_TIMEOUT_MS   30000
#define LIMIT_DRAIN_TIMEOUT_MS   10000
#define LIMIT_RATE_PLACES        8192 /* callers that are told apart */
#define LIMIT_ADDRESS_PER_MINUTE 1200 /* requests without a key, of one address beyond loopback */
#define LIMIT_PROJECTS           10000
#define LIMIT_KEYS               1000 /* that are valid; more are made by `cay key` alone */
#define LIMIT_WS_MESSAGE_BYTES   (4 * 1024 * 1024)
#define LIMIT_WS_QUEUE_BYTES     (8 * 1024 * 1024)
#define LIMIT_WRITE_HIGH_BYTES   (256 * 1024)
#define LIMIT_WRITE_LOW_BYTES    (64 * 1024)
#define LIMIT_BODY_PACE_BYTES    4096               /* each second, over five of them */
#define LIMIT_HELD_BYTES         (64 * 1024 * 1024) /* of bodies that are not whole, and answers */
#define LIMIT_READ_AT_ONCE_BYTES (32 * 1024)        /* larger bodies are read by a thread */
#define LIMIT_JSON_VALUES        1000000            /* of one body, or frame of a socket */
#define LIMIT_READ_BODIES        64                 /* that wait for it, or are read */
#define LIMIT_READ_BYTES         (64 * 1024 * 1024) /* of those */
#define LIMIT_PAGE_ROWS          100
#define LIMIT_JOB_EVENTS_BYTES   (1024 * 1024) /* of a job that does not store its events */

/* The store: keys under "store" in cay.json, in lower case without "LIMIT_STORE_". Its log is kept
 * below LIMIT_STORE_LOG_BYTES while it is written to without a pause, on a disk that syncs within
 * a second or two. */
#define LIMIT_STORE_LOG_BYTES     (64 * 1024 * 1024)
#define LIMIT_STORE_KEEP_RUNS     1000000
#define LIMIT_STORE_KEEP_S        2592000
#define LIMIT_STORE_KEEP_MB       2048
#define LIMIT_STORE_RUN_EVENTS    20000
#define LIMIT_STORE_RUN_EVENTS_MB 8
#define LIMIT_STORE_ARTIFACTS     100
#define LIMIT_STORE_ARTIFACT_MB   64
#define LIMIT_STORE_WORKERS       1000
#define LIMIT_STORE_WORKERS_MB    256

/* Tasks: keys under "tasks" in cay.json, in lower case without "LIMIT_TASK_". */
#define LIMIT_TASK_SLOTS              16
#define LIMIT_TASK_PER_KEY            8
#define LIMIT_TASK_WAITING_PER_KEY    10000
#define LIMIT_TASK_WAITING_MB_PER_KEY 256
#define LIMIT_TASK_KEEP_S             2592000
#define LIMIT_TASK_KEEP_TASKS         1000000
#define LIMIT_TASK_KEEP_MB            1024

/* A run in an isolate. */
#define LIMIT_RUN_WALL_MS       30000
#define LIMIT_RUN_CPU_MS        10000
#define LIMIT_RUN_MEMORY_BYTES  (128ULL * 1024 * 1024)
#define LIMIT_RUN_OUTPUT_BYTES  (256 * 1024)
#define LIMIT_RUN_BINDING_CALLS 10000
/* Headers of a worker's response; ours come on top. */
#define LIMIT_RESPONSE_HEAD_BYTES (60 * 1024)
#define LIMIT_RUN_MODULE_BYTES    (4 * 1024 * 1024)
#define LIMIT_ISOLATES            32
#define LIMIT_READY_ISOLATES      8
#define LIMIT_WAITING_RUNS        256
#define LIMIT_WAIT_MS             10000
#define LIMIT_FACETS              256
#define LIMIT_WARM_WORKERS        32
#define LIMIT_WARM_IDLE_MS        300000
#define LIMIT_WORKER_CACHE_BYTES  (16 * 1024 * 1024)

/* The compiler. Small programs have a process of their own, in which one may not take long. */
#define LIMIT_COMPILE_CPU_MS        5000
#define LIMIT_COMPILE_TIMEOUT_MS    30000
#define LIMIT_COMPILE_CACHE_BYTES   (32 * 1024 * 1024)
#define LIMIT_COMPILE_SMALL_BYTES   (32 * 1024)
#define LIMIT_COMPILE_SMALL_CPU_MS  100
#define LIMIT_COMPILE_WAITING_BYTES (64 * 1024 * 1024)
#define LIMIT_COMPILE_IDLE_MS       10000

/* A facet: one SQLite database. */
#define LIMIT_FACET_ROWS         10000
#define LIMIT_FACET_RESULT_BYTES (8 * 1024 * 1024)
#define LIMIT_FACET_TIME_MS      5000
#define LIMIT_FACET_SQL_BYTES    (128 * 1024)
#define LIMIT_FACET_VALUE_BYTES  (2 * 1024 * 1024)
#define LIMIT_FACET_CALL_BYTES   (4 * 1024 * 1024)
#define LIMIT_FACET_DISK_BYTES   (256 * 1024 * 1024)
#define LIMIT_FACET_MEMORY_BYTES (64 * 1024 * 1024)
#define LIMIT_FACET_BATCH        1000
#define LIMIT_FACET_STALL_MS     10000
#define LIMIT_DATABASE_OPS       16 /* exported, imported or copied at a time */

/* One answer of a model. The largest today say some 500 KB. */
#define LIMIT_MODEL_REQUEST_BYTES (32 * 1024 * 1024)
#define LIMIT_MODEL_REPLY_BYTES   (1024 * 1024)
#define LIMIT_MODEL_WHOLE_BYTES   (4 * 1024 * 1024) /* as JSON, of which the usage is read */
#define LIMIT_MODEL_EVENT_BYTES   (1024 * 1024)
#define LIMIT_MODEL_ERROR_BYTES   (16 * 1024)
#define LIMIT_MODEL_BLOCKS        256
#define LIMIT_MODEL_CONNECTIONS   512
#define LIMIT_MODEL_CONNECT_MS    10000
#define LIMIT_MODEL_IDLE_MS       120000
#define LIMIT_MODEL_TOTAL_MS      600000
#define LIMIT_MODEL_RETRIES       3
#define LIMIT_MODEL_RETRY_WAIT_MS 30000

/* An agent's conversation. Clients send all of it with each message, so that the history must fit
 * into a WebSocket message; a turn's stream must fit into a WebSocket's queue. */
#define LIMIT_AGENT_TURNS         16
#define LIMIT_AGENT_MESSAGES      1500
#define LIMIT_AGENT_MESSAGE_BYTES (1024 * 1024)
#define LIMIT_AGENT_HISTORY_BYTES (2 * 1024 * 1024)
#define LIMIT_AGENT_CONTEXT_BYTES (600 * 1024)
#define LIMIT_AGENT_STREAM_BYTES  (6 * 1024 * 1024)
#define LIMIT_AGENT_TOOL_BYTES    (256 * 1024)
#define LIMIT_AGENT_INSTANCES     10000

/* The executor: "max", "timeout_ms" and "fetch_timeout_ms" are keys under "execute" in cay.json. A
 * job that says more than its transcript may hold is ended. */
/* What a model's answer is believed to have used, of tokens or searches: a server that says more
 * must not make sums overflow. */
#define LIMIT_SANDBOX_CALLS            128 /* of models, that a sandbox makes at a time */
#define LIMIT_MODEL_USED               100000000
#define LIMIT_EXECUTE_MAX              256
#define LIMIT_EXECUTE_TIMEOUT_MS       300000
#define LIMIT_EXECUTE_FETCH_TIMEOUT_MS 20000
#define LIMIT_EXECUTE_PROMPT_BYTES     (1024 * 1024)
#define LIMIT_EXECUTE_TRANSCRIPT_BYTES (6 * 1024 * 1024)

/* Pages that tools read. No settings. */
#define LIMIT_WEB_BODY_BYTES (4 * 1024 * 1024) /* of a page, unpacked; the rest is left */
#define LIMIT_WEB_HTML_BYTES (1024 * 1024)     /* of it, without what nobody sees */
#define LIMIT_WEB_TEXT_BYTES (100 * 1024)      /* of its text, at a time */
#define LIMIT_WEB_REDIRECTS  5
#define LIMIT_WEB_WAITING    64 /* for the reader, of which a key has three quarters */
#define LIMIT_WEB_CPU_MS     2000

/* Linux sandboxes: keys under "sandboxes" in cay.json, in lower case without "LIMIT_SANDBOX_". */
#define LIMIT_SANDBOX_POOL          2
#define LIMIT_SANDBOXES             64 /* max */
#define LIMIT_SANDBOXES_PER_KEY     16 /* max_per_key */
#define LIMIT_SANDBOX_TIMEOUT_S     300
#define LIMIT_SANDBOX_MAX_TIMEOUT_S 86400
#define LIMIT_SANDBOX_MEMORY_MB     1024
#define LIMIT_SANDBOX_DISK_MB       512
#define LIMIT_SANDBOX_PIDS          256
#define LIMIT_SANDBOX_OUTPUT_MB     64
#define LIMIT_SANDBOX_OUTPUTS_MB    1024
#define LIMIT_SANDBOX_EXECS         1000
#define LIMIT_SANDBOX_COMMANDS      1024 /* that run, in all sandboxes together */
/* Input that commands have not read: of a key, and of all of them. No settings. */
#define LIMIT_SANDBOX_INPUT_BYTES     (24 * 1024 * 1024)
#define LIMIT_SANDBOX_INPUT_ALL_BYTES (32 * 1024 * 1024)
/* What all uploads hold before each has only a little. No setting. */
#define LIMIT_SANDBOX_UPLOADS_BYTES (16 * 1024 * 1024)
#define LIMIT_SANDBOX_KEEP          200
#define LIMIT_SANDBOX_KEEP_S        604800
#define LIMIT_SANDBOX_UPLOAD_MB     1024
#define LIMIT_SANDBOX_SNAPSHOT_MB   1024
#define LIMIT_SANDBOX_SNAPSHOTS_MB  4096
#define LIMIT_SANDBOX_SNAPSHOT_S    600
/* Of what all keys share, one key has at most this part unless the setting says how much it has
 * (max_per_key, commands_per_key, snapshots_mb_per_key): the rest is for the others. */
#define LIMIT_SANDBOX_SHARE_PERCENT 75
#define LIMIT_SANDBOX_CONNECTIONS   64
#define LIMIT_SANDBOX_ANSWER_S      120
#define LIMIT_SANDBOX_EVENTS        1000
#define LIMIT_SANDBOX_EVENTS_TOTAL  200000
/* How long a command may take until it is executed (init gives it up), and any answer of an init
 * (the front ends the sandbox). No settings: nothing that is well comes near them. */
#define LIMIT_SANDBOX_START_S 10
#define LIMIT_SANDBOX_INIT_MS 30000
#define LIMIT_SANDBOX_WORK_MS 120000 /* deleting a tree, writing from a pipe */

/* A coding agent in a sandbox: arguments of cay-coder, in lower case without "LIMIT_CODER_" and
 * with "-" for "_", where there is one. */
#define LIMIT_CODER_MAX_STEPS          5
#define LIMIT_CODER_MAX_STEPS_MAX      200 /* that a request may ask for */
#define LIMIT_CODER_TIMEOUT_MS         300000
#define LIMIT_CODER_COMMAND_TIMEOUT_MS 60000
#define LIMIT_CODER_MODEL_TIMEOUT_MS   240000
#define LIMIT_CODER_MAX_TOKENS         16000
#define LIMIT_CODER_RETRIES            5 /* with their waits some 15 s */
#define LIMIT_CODER_RETRY_WAIT_MS      500
#define LIMIT_CODER_RETRY_MAX_MS       30000 /* longer is not waited */
#define LIMIT_CODER_CONTEXT_BYTES      (256 * 1024)
#define LIMIT_SHELL_COMMAND_BYTES      (128 * 1024) /* no argument may be longer */
#define LIMIT_CODER_SPEC_BYTES         (64 * 1024)
#define LIMIT_CODER_PROMPT_BYTES       (64 * 1024)
#define LIMIT_CODER_ANSWER_BYTES       (4 * 1024 * 1024) /* of the model's server */
#define LIMIT_CODER_REPLY_BYTES        (1024 * 1024)     /* of text in it */
#define LIMIT_CODER_OUTPUT_BYTES       (24 * 1024)   /* of a tool: half its head, half its tail */
#define LIMIT_CODER_FILE_BYTES         (1024 * 1024) /* that is written or edited */
#define LIMIT_CODER_LIST_ENTRIES       500
#define LIMIT_CODER_LIST_DEPTH         8
#define LIMIT_CODER_EVENTS             20000
#define LIMIT_CODER_EVENTS_BYTES       (16 * 1024 * 1024)
