#pragma once
/* The contract between the front, the isolate zygote (cay-isolate) and its isolates.
 *
 * The front starts `cay-isolate` with one end of a stream socket as descriptor 3 (control) and
 * nothing else. On control:
 *
 *   front -> zygote
 *     CONFIG   u32 version (ISOLATE_VERSION), u32 flags (ISOLATE_CONFIG_*), u32 levers
 *              (ISOLATE_LEVER_*), u64 memory_max_bytes, u32 cpu_max_s, bytes plan (what PLAN of an
 *              earlier zygote said, or nothing). Must be the first message.
 *     WANT     u32 n: fork n more isolates. The front keeps the pool and asks for what it lacks.
 *     ALLOW    u32 number, u32 calls: a call begins on that isolate, so many are at work on it:
 *              from now on it may use so many times cpu_max_s of processor time. One that uses
 *              more is killed, and EXITED says ISOLATE_EXIT_CPU. A new isolate needs none for its
 *              first call.
 *   zygote -> front
 *     FEATURES JSON object: which locks and levers are active, and why one is not. Comes once, when
 *              the zygote is ready to fork; "error" in it says that a strict CONFIG was refused.
 *     PLAN     u32 each: where a later zygote should put its allocations (src/isolate/gather.h).
 *              Comes before FEATURES after ISOLATE_CONFIG_LEARN, if it can be had.
 *     READY    u32 number, u32 pid; descriptors: the isolate's channel, a pidfd. The isolate is
 *              locked down, populated and waits for RUN.
 *     EXITED   u32 number, u32 wait status, u64 user_us, u64 system_us, u64 max_rss_kib, u64 minor
 *              faults, u64 base_rss_kib (what it had when it was READY), u64 shared_kib (what it
 *              shared with the zygote then, and may have written to). Comes for every isolate,
 *              also for one that died before it was READY. A forbidden system call is a death by
 *              SIGSYS; ISOLATE_EXIT_* are exits on a limit.
 * When control closes, the zygote and all of its isolates end.
 *
 * On an isolate's channel (the frame's id names the call; the front chooses ids from 1 on):
 *
 *   front -> isolate
 *     RUN      u32 flags (ISOLATE_RUN_*), u32 cpu_ms, u64 memory_bytes, u32 output_bytes,
 *              u32 binding_calls (0: none), u32 result_bytes, u32 wait_until_ms (0 in another: the
 *              default below), bytes program (what the compiler linked: JSON), bytes spec (JSON,
 *              below); descriptors: the capability sockets of the env, by index. Once per isolate
 *              (RESET: once per round).
 *     CALL     u32 cpu_ms, u32 output_bytes (0 in these: as RUN said), u32 binding_calls (0: none),
 *              bytes spec (JSON: "entrypoint", "method", "args", "props", "http"), bytes body. Only
 *              to an isolate that was started with ISOLATE_RUN_WARM; calls may overlap. Not after
 *              ENDING: it would be told of what another call did.
 *     ROOM     u32 bytes: so many more bytes of BODY may come for this call
 *     INPUT    u8 last, the rest is bytes: a piece of the request's body, for a call whose "http"
 *              has "stream": true
 *     CANCEL   no payload: nobody waits for this call any more. It goes on, but what it sends is
 *              thrown away and what it reads breaks off. USED answers it, if the call is not
 *              over; it comes for each call also after SIGUSR2, which reaches a program that
 *              computes.
 *   isolate -> front
 *     LOG      u8 level (enum isolate_log), f64 time (ms since 1970), the rest is text
 *     RESULT   JSON text, empty for undefined; tagged (below) if the call asked for it
 *     RESPONSE the answer of a "http" call, in the place of RESULT: JSON with "status",
 *              "statusText" and "headers": [[name, value]], and "length" if it is known
 *     BODY     follows RESPONSE, once or more: u8 last, the rest is bytes of the body
 *     TAKEN    u32 bytes of INPUT that the program has read
 *     ERROR    JSON: name, message, stack (lines "    at fn (module:line:column)"), module, line,
 *              column, code (the error's own, if it has one); "kind": "error" (thrown),
 *              "unhandled" (rejection nobody handled), "stuck" (nothing is left that could settle
 *              the program), "limit", "load" (the program could not be loaded), "result" (the
 *              result cannot be sent)
 *     DONE     the last frame of a call: u64 cpu_us, u64 peak_memory_bytes, u32 binding_calls,
 *              u64 output_bytes (as the program wrote them), u64 output_dropped_bytes
 *     USED     as DONE, of a call that goes on: what it has used so far
 *     ENDING   no payload, id 0: a limit or a fault ends the isolate, which takes no more calls.
 *              ERROR and DONE of those that it has follow, then its end.
 *     RESET_READY  u32 pages put back, u32 pages dropped, u32 1 if only known pages were looked at:
 *              the isolate is as new, RUN may follow.
 *
 * RESULT, RESPONSE or ERROR comes as soon as it is known: a RESULT when every microtask has run.
 * What ctx.waitUntil() was given, and the binding calls that nobody waited for, are waited for
 * afterwards, so LOG and one ERROR may follow a RESULT; DONE ends the call. The wall clock is the
 * front's: it sends SIGTERM by the pidfd, on which the isolate sends ENDING and, for each call,
 * ERROR and DONE with what it used, and exits; one that does not is killed. Calls that overlap are
 * told apart by the events that move them: LOG, ERROR, processor time and binding calls are those
 * of the call whose event it was.
 *
 * At most ISOLATE_BODY_WINDOW bytes of BODY, and as many of INPUT, are under way for a call:
 * further ones wait for ROOM and TAKEN. So who reads slowly holds up one call, and fills nobody's
 * memory.
 *
 * spec of RUN: {"env": {name: {"json": value} | {"fd": index, "kind": "facet" | "worker",
 *   "methods": [names] (worker: may be missing)}}, "entrypoint": name ("default"), "method": name,
 *   "args": [..], "props": {..}, "verify": true (call verify() first, without its logs),
 *   "tagged": true (args and result are tagged), "http": {"method", "url", "headers": [[n, v]],
 *   "stream": true (the body comes by INPUT)}
 *   (calls fetch(); a CALL's body is the request's), "main": false (only load, for a warm isolate
 * that waits for CALL)}
 *
 * How an entrypoint is called (E is the export it names):
 *   E is a class: new E(ctx, env), then .method(...args); method defaults to "run"
 *   E is a function: E(env, ...args)
 *   E is an object: fetch(request, env, ctx); run(env, ...args); another method(...args, env, ctx)
 *
 * On a capability socket the isolate sends CALL frames: bytes method, the rest is a JSON array of
 * arguments; it gets RESULT (JSON) or FAIL (JSON: name, message, code) with the same id. Facets:
 * src/wire/facet.h. Workers ("kind": "worker") use the same frames with tagged JSON; the method
 * "fetch" has one argument {"method", "url", "headers", "body"} and gives {"status", "statusText",
 * "headers", "body"}, bodies being bytes.
 *
 * Tagged JSON is JSON in which an object with the key "$t" stands for a value that JSON lacks:
 *   {"$t":"undefined"}  {"$t":"number","v":"NaN" | "Infinity" | "-Infinity" | "-0"}
 *   {"$t":"bigint","v":"123"}  {"$t":"date","v":ms | null}  {"$t":"map","v":[[k,v]..]}
 *   {"$t":"set","v":[..]}  {"$t":"bytes","v":"base64","k":"Uint8Array" | other view |
 *   "ArrayBuffer"}  {"$t":"error","v":{"name","message","stack","cause"}}
 *   {"$t":"regexp","v":[source, flags]}  {"$t":"object","v":[[k,v]..]} (a plain object that has a
 *   key "$t" itself)
 */

#define ISOLATE_VERSION    6
#define ISOLATE_CONTROL_FD 3

enum isolate_control {
    ISOLATE_CONFIG = 1,
    ISOLATE_WANT = 2,
    ISOLATE_ALLOW = 4,
    ISOLATE_FEATURES = 16,
    ISOLATE_READY = 17,
    ISOLATE_EXITED = 18,
    ISOLATE_PLAN = 19,
};

enum isolate_message {
    ISOLATE_RUN = 32,
    ISOLATE_CALL = 33,
    ISOLATE_ROOM = 34,
    ISOLATE_INPUT = 35,
    ISOLATE_CANCEL = 36,
    ISOLATE_HELLO = 47, /* isolate -> zygote only, before READY; the id is its bytes in memory */
    ISOLATE_LOG = 48,
    ISOLATE_RESULT = 49,
    ISOLATE_ERROR = 50,
    ISOLATE_DONE = 51,
    ISOLATE_RESPONSE = 52,
    ISOLATE_RESET_READY = 53,
    ISOLATE_BODY = 54,
    ISOLATE_ENDING = 55,
    ISOLATE_TAKEN = 56,
    ISOLATE_USED = 57,
};

/* Frames on a capability socket: the numbers of src/wire/facet.h. */
enum isolate_binding {
    ISOLATE_BINDING_CALL = 64,
    ISOLATE_BINDING_RESULT = 65,
    ISOLATE_BINDING_FAIL = 66,
};

enum isolate_config_flag {
    /* Refuse to serve (FEATURES with "error") unless every lock is active. */
    ISOLATE_CONFIG_STRICT = 1 << 0,
    /* Isolates put their memory back after each run (ISOLATE_RUN_RESET is possible). */
    ISOLATE_CONFIG_RESET = 1 << 1,
    /* Find a plan: some tenths of a second, which nobody should wait for. */
    ISOLATE_CONFIG_LEARN = 1 << 2,
};

/* What makes a start cheap. Each is probed, tested and dropped by itself if it does not hold. */
enum isolate_lever {
    ISOLATE_LEVER_WARM = 1 << 0,      /* the zygote ran a program over the real path */
    ISOLATE_LEVER_THRESHOLD = 1 << 1, /* short runs do not compile */
    ISOLATE_LEVER_TEXT = 1 << 2,      /* the engine's text on huge anonymous pages */
    ISOLATE_LEVER_POPULATE = 1 << 3,  /* pages a run writes are populated before work arrives */
    ISOLATE_LEVER_GATHER = 1 << 4,    /* what a run writes to lies close together */
    ISOLATE_LEVER_ALL = (1 << 5) - 1,
};

enum isolate_run_flag {
    ISOLATE_RUN_WARM = 1 << 0,  /* stay and serve CALL afterwards */
    ISOLATE_RUN_RESET = 1 << 1, /* put the memory back afterwards and send RESET_READY */
};

enum isolate_log {
    ISOLATE_LOG_DEBUG,
    ISOLATE_LOG_LOG,
    ISOLATE_LOG_INFO,
    ISOLATE_LOG_WARN,
    ISOLATE_LOG_ERROR,
};

/* Exit statuses of an isolate. */
enum isolate_exit {
    ISOLATE_EXIT_OK = 0,        /* the front closed the channel */
    ISOLATE_EXIT_PROTOCOL = 70, /* a malformed frame came */
    ISOLATE_EXIT_SETUP = 71,    /* the lock-down failed: nothing was run */
    ISOLATE_EXIT_MEMORY = 72,   /* the memory limit; an ERROR went before it where possible */
    ISOLATE_EXIT_CPU = 73,      /* the processor-time limit; as above */
    ISOLATE_EXIT_CRASH = 74,    /* the engine failed */
    ISOLATE_EXIT_RESET = 75,    /* the memory could not be put back */
    ISOLATE_EXIT_ASKED = 76,    /* SIGTERM */
};

#define ISOLATE_DEFAULT_CPU_MS        10000
#define ISOLATE_DEFAULT_MEMORY_BYTES  (128u << 20)
#define ISOLATE_DEFAULT_OUTPUT_BYTES  (256u << 10)
#define ISOLATE_DEFAULT_BINDING_CALLS 10000
#define ISOLATE_DEFAULT_RESULT_BYTES  (1u << 20)
#define ISOLATE_DEFAULT_WAIT_UNTIL_MS 5000
#define ISOLATE_BODY_WINDOW           (256u << 10)
#define ISOLATE_FRAME_MAX             (32u << 20)
