// Timers: a binary heap by due time, then by age. tick() runs one, so that its microtasks run before
// the next. A timer that was cleared stays in the heap until it comes up, or until such are the
// greater part. A timer belongs to the call that set it and goes with it.
import {
    MapCtor, TypeErrorCtor, apply, current, define, enter, globals, hooks, imul, list, mapDelete, mapForEach,
    mapGet, mapSet, push,
} from "./base.js";

let heap = list(), timers = new MapCtor(), timerId = 0, userTimers = 0, goneTimers = 0;

const before = (a, b) => a.at < b.at || (a.at === b.at && a.order < b.order);
let timerOrder = 0;

function heapAdd(t) {
    let i = heap.length;
    push(heap, t);
    while (i > 0) {
        const up = (i - 1) >> 1;
        if (!before(t, heap[up])) break;
        heap[i] = heap[up];
        i = up;
    }
    heap[i] = t;
}

function heapTake() {
    const first = heap[0], last = heap[heap.length - 1];
    heap.length--;
    const n = heap.length;
    if (n === 0) return first;
    let i = 0;
    for (;;) {
        let down = 2 * i + 1;
        if (down >= n) break;
        if (down + 1 < n && before(heap[down + 1], heap[down])) down++;
        if (!before(heap[down], last)) break;
        heap[i] = heap[down];
        i = down;
    }
    heap[i] = last;
    return first;
}

function compact() {
    const all = heap;
    heap = list();
    goneTimers = 0;
    for (let i = 0; i < all.length; i++) if (!all[i].gone) heapAdd(all[i]);
}

function arm() {
    while (heap.length > 0 && heap[0].gone) { heapTake(); goneTimers--; }
    host.arm(soon.length > 0 ? 0 : heap.length > 0 ? heap[0].at : -1, userTimers);
}

// What the prelude does in a turn of its own: by then every microtask of this one has run, and the
// engine has told which rejections nobody handled. It goes before timers, the youngest first.
let soon = list();
function later(call, fn) {
    call.soon++;
    push(soon, call);
    push(soon, fn);
    host.arm(0, userTimers);
}
function takeSoon() {
    const n = soon.length, call = soon[n - 2], fn = soon[n - 1];
    soon.length = n - 2;
    call.soon--;
    if (n === 2) arm();
    enter(call);
    fn(call);
}

function addTimer(fn, ms, args, repeat, internal) {
    ms = +ms;
    if (!(ms >= 1)) ms = repeat ? 1 : 0;
    if (ms > 2147483647) ms = 1;
    const call = current;
    if (call === null && !internal) return 0; // nobody would pay for what it does
    const t = { __proto__: null, call, id: ++timerId, at: host.now() + ms, order: ++timerOrder, ms, fn, args, repeat, internal, gone: false };
    mapSet(timers, t.id, t);
    if (!internal) { userTimers++; call.timers++; }
    heapAdd(t);
    arm();
    return t.id;
}

function dropTimer(id) {
    const t = mapGet(timers, id);
    if (t === undefined) return;
    t.gone = true;
    t.fn = t.args = null;
    mapDelete(timers, id);
    if (++goneTimers > 64 && goneTimers * 2 > heap.length) compact();
    if (!t.internal) { userTimers--; t.call.timers--; }
    arm();
}
// By number, as a program has it: it may guess those that are not its own.
function clearTimer(id) {
    const t = mapGet(timers, id);
    if (t !== undefined && !t.internal) dropTimer(id);
}
function dropTimersOf(call) {
    if (call.timers > 0) mapForEach(timers, (t) => { if (t.call === call && !t.internal) dropTimer(t.id); });
}

function tick() {
    if (soon.length > 0) { takeSoon(); return; }
    arm();
    if (heap.length === 0 || heap[0].at > host.now()) return;
    const t = heapTake(), fn = t.fn, args = t.args;
    if (t.repeat) {
        t.at = host.now() + t.ms;
        t.order = ++timerOrder;
        heapAdd(t);
    } else {
        mapDelete(timers, t.id);
        if (!t.internal) { userTimers--; t.call.timers--; }
    }
    arm();
    enter(t.call);
    try { apply(fn, undefined, args); } catch (e) { hooks.uncaught(e, "error"); }
}

const callable = (fn, what) => {
    if (typeof fn !== "function") throw new TypeErrorCtor(`${what}: the callback must be a function`);
};
define(globals, "setTimeout", function setTimeout(callback, delay = 0, ...args) {
    callable(callback, "setTimeout");
    return addTimer(callback, delay, args, false, false);
});
define(globals, "setInterval", function setInterval(callback, delay = 0, ...args) {
    callable(callback, "setInterval");
    return addTimer(callback, delay, args, true, false);
});
define(globals, "clearTimeout", function clearTimeout(id) { clearTimer(id); });
define(globals, "clearInterval", function clearInterval(id) { clearTimer(id); });
define(globals, "setImmediate", function setImmediate(callback, ...args) {
    callable(callback, "setImmediate");
    return addTimer(callback, 0, args, false, false);
});
define(globals, "clearImmediate", function clearImmediate(id) { clearTimer(id); });

async function microtask(fn) {
    await undefined;
    try { fn(); } catch (e) { hooks.uncaught(e, "error"); }
}
define(globals, "queueMicrotask", function queueMicrotask(callback) {
    callable(callback, "queueMicrotask");
    microtask(callback);
});

// Math.random of the engine is the same in every fork. xoshiro128**, seeded by the kernel.
let r0 = 1, r1 = 2, r2 = 3, r3 = 4;
const rotate = (x, k) => (x << k) | (x >>> (32 - k));
function word() {
    const out = imul(rotate(imul(r1, 5), 7), 9), t = r1 << 9;
    r2 ^= r0; r3 ^= r1; r1 ^= r2; r0 ^= r3; r2 ^= t;
    r3 = rotate(r3, 11);
    return out >>> 0;
}
define(Math, "random", function random() { return ((word() >>> 5) * 67108864 + (word() >>> 6)) / 9007199254740992; });
function seed(a, b, c, d) { r0 = a | 0; r1 = b | 0; r2 = c | 0; r3 = d | 0; }

// As if nothing had run.
function clearTimers() {
    heap = list(); soon = list(); timers = new MapCtor(); timerId = timerOrder = userTimers = goneTimers = 0;
}

export { addTimer, arm, clearTimers, dropTimer, dropTimersOf, later, seed, tick };
