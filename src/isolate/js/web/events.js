"use strict";
const p = require("./primordials");
const { Map, TypeError, append, apply, core, fromIterable, host, isObject, iterator, list, mapGet, mapSet, shape } = p;
const { DOMException, fail } = require("./dom");
const { report } = require("./report");

const NONE = 0, AT_TARGET = 2;

class Event {
  #type; #bubbles; #cancelable; #composed; #timeStamp = host.now();
  #target = null; #dispatching = false; #stop = false; #stopNow = false; #canceled = false;
  #passive = false;
  constructor(type, init = undefined) {
    if (arguments.length === 0) throw new TypeError("Event: a type is needed");
    this.#type = `${type}`;
    if (init !== undefined && init !== null && !isObject(init))
      throw new TypeError("Event: the second argument is not an object");
    this.#bubbles = !!init?.bubbles;
    this.#cancelable = !!init?.cancelable;
    this.#composed = !!init?.composed;
  }
  get type() {
    return this.#type;
  }
  get target() {
    return this.#target;
  }
  get srcElement() {
    return this.#target;
  }
  get currentTarget() {
    return this.#dispatching ? this.#target : null;
  }
  composedPath() {
    return this.#dispatching ? [this.#target] : [];
  }
  get eventPhase() {
    return this.#dispatching ? AT_TARGET : NONE;
  }
  stopPropagation() {
    this.#stop = true;
  }
  get cancelBubble() {
    return this.#stop;
  }
  set cancelBubble(v) {
    if (v) this.#stop = true;
  }
  stopImmediatePropagation() {
    this.#stop = this.#stopNow = true;
  }
  get bubbles() {
    return this.#bubbles;
  }
  get cancelable() {
    return this.#cancelable;
  }
  get returnValue() {
    return !this.#canceled;
  }
  set returnValue(v) {
    if (!v && this.#cancelable && !this.#passive) this.#canceled = true;
  }
  preventDefault() {
    if (this.#cancelable && !this.#passive) this.#canceled = true;
  }
  get defaultPrevented() {
    return this.#canceled;
  }
  get composed() {
    return this.#composed;
  }
  get isTrusted() {
    return false;
  }
  get timeStamp() {
    return this.#timeStamp;
  }
  initEvent(type, bubbles = false, cancelable = false) {
    if (this.#dispatching) return;
    this.#type = `${type}`;
    this.#bubbles = !!bubbles;
    this.#cancelable = !!cancelable;
    this.#stop = this.#stopNow = this.#canceled = false;
    this.#target = null;
  }
  static is(v) {
    return isObject(v) && #type in v;
  }
  static typeOf(e) {
    return e.#type;
  }
  // Calls the listeners of a target; false if a listener cancelled the event.
  static dispatch(target, e, listeners) {
    if (e.#dispatching) fail("InvalidStateError", "The event is already being dispatched");
    e.#dispatching = true;
    e.#target = target;
    if (listeners !== undefined && !e.#stop) {
      const now = list();
      for (let i = 0; i < listeners.length; i++) append(now, listeners[i]);
      for (let i = 0; i < now.length && !e.#stopNow; i++) {
        const l = now[i];
        if (l.removed) continue;
        if (l.once) l.remove();
        e.#passive = l.passive;
        try {
          if (typeof l.callback === "function") {
            apply(l.callback, target, [e]);
          } else {
            const handle = l.callback.handleEvent;
            if (typeof handle !== "function") throw new TypeError("EventListener.handleEvent is not a function");
            apply(handle, l.callback, [e]);
          }
        } catch (error) {
          report(error);
        }
        e.#passive = false;
      }
    }
    e.#dispatching = e.#stop = e.#stopNow = false;
    return !e.#canceled;
  }
}
const isEvent = Event.is, eventType = Event.typeOf, dispatch = Event.dispatch;
delete Event.is;
delete Event.typeOf;
delete Event.dispatch;
shape(Event, "Event", { constants: { __proto__: null, NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 } });

class EventTarget {
  #listeners = null;
  addEventListener(type, callback, options = undefined) {
    if (arguments.length < 2) throw new TypeError("addEventListener: two arguments are needed");
    const name = `${type}`;
    const object = isObject(options);
    const capture = object ? !!options.capture : !!options;
    const once = object && !!options.once;
    const passive = object && !!options.passive;
    const signal = object ? options.signal : undefined;
    if (signal !== undefined && !AbortSignalState.is(signal))
      throw new TypeError("addEventListener: signal is not an AbortSignal");
    if (callback === null || callback === undefined) return void this.#listeners;
    if (!isObject(callback)) throw new TypeError("addEventListener: the listener is not an object");
    if (signal !== undefined && isAborted(signal)) return;
    this.#listeners ??= new Map();
    let all = mapGet(this.#listeners, name);
    if (all === undefined) mapSet(this.#listeners, name, all = list());
    for (let i = 0; i < all.length; i++)
      if (all[i].callback === callback && all[i].capture === capture) return;
    const l = { __proto__: null, callback, capture, once, passive, removed: false, remove() {
      l.removed = true;
      const kept = list(), current = all;
      for (let i = 0; i < current.length; i++) if (current[i] !== l) append(kept, current[i]);
      all.length = 0;
      for (let i = 0; i < kept.length; i++) append(all, kept[i]);
    } };
    append(all, l);
    if (signal !== undefined) AbortSignalState.onAbort(signal, l.remove);
  }
  removeEventListener(type, callback, options = undefined) {
    if (arguments.length < 2) throw new TypeError("removeEventListener: two arguments are needed");
    const capture = isObject(options) ? !!options.capture : !!options;
    const all = this.#listeners === null ? undefined : mapGet(this.#listeners, `${type}`);
    if (all === undefined) return;
    for (let i = 0; i < all.length; i++)
      if (all[i].callback === callback && all[i].capture === capture) return all[i].remove();
  }
  dispatchEvent(event) {
    if (!isEvent(event)) throw new TypeError("dispatchEvent: the argument is not an Event");
    const all = this.#listeners === null ? undefined : mapGet(this.#listeners, eventType(event));
    return dispatch(this, event, all);
  }
}
shape(EventTarget, "EventTarget");
const addListener = p.uncurry(EventTarget.prototype.addEventListener);
const dispatchEvent = p.uncurry(EventTarget.prototype.dispatchEvent);

class CustomEvent extends Event {
  #detail;
  constructor(type, init = undefined) {
    super(type, init);
    const detail = init?.detail;
    this.#detail = detail === undefined ? null : detail;
  }
  get detail() {
    return this.#detail;
  }
}
shape(CustomEvent, "CustomEvent");

class ErrorEvent extends Event {
  #message; #filename; #lineno; #colno; #error;
  constructor(type, init = undefined) {
    super(type, init);
    this.#message = init?.message === undefined ? "" : `${init.message}`;
    this.#filename = init?.filename === undefined ? "" : `${init.filename}`;
    this.#lineno = init?.lineno === undefined ? 0 : init.lineno >>> 0;
    this.#colno = init?.colno === undefined ? 0 : init.colno >>> 0;
    this.#error = init?.error;
  }
  get message() {
    return this.#message;
  }
  get filename() {
    return this.#filename;
  }
  get lineno() {
    return this.#lineno;
  }
  get colno() {
    return this.#colno;
  }
  get error() {
    return this.#error;
  }
}
shape(ErrorEvent, "ErrorEvent");

class PromiseRejectionEvent extends Event {
  #promise; #reason;
  constructor(type, init) {
    super(type, init);
    if (!isObject(init) || !isObject(init.promise))
      throw new TypeError("PromiseRejectionEvent: promise is needed");
    this.#promise = init.promise;
    this.#reason = init.reason;
  }
  get promise() {
    return this.#promise;
  }
  get reason() {
    return this.#reason;
  }
}
shape(PromiseRejectionEvent, "PromiseRejectionEvent");

class MessageEvent extends Event {
  #data; #origin; #lastEventId; #source; #ports;
  constructor(type, init = undefined) {
    super(type, init);
    this.#data = init?.data === undefined ? null : init.data;
    this.#origin = init?.origin === undefined ? "" : p.usv(init.origin);
    this.#lastEventId = init?.lastEventId === undefined ? "" : `${init.lastEventId}`;
    this.#source = init?.source === undefined ? null : init.source;
    const ports = list();
    if (init?.ports !== undefined)
      fromIterable(init.ports, init.ports[iterator], (port) => append(ports, port));
    this.#ports = p.objectFreeze(p.toArray(ports));
  }
  get data() {
    return this.#data;
  }
  get origin() {
    return this.#origin;
  }
  get lastEventId() {
    return this.#lastEventId;
  }
  get source() {
    return this.#source;
  }
  get ports() {
    return this.#ports;
  }
}
shape(MessageEvent, "MessageEvent");

// An event handler attribute (onabort, onmessage): a listener whose function can be exchanged.
function handlerOf(target, type) {
  const handler = { __proto__: null, fn: null, added: false };
  handler.set = (v) => {
    handler.fn = isObject(v) ? v : null;
    if (handler.fn === null || handler.added) return;
    handler.added = true;
    addListener(target, type, (event) => {
      if (typeof handler.fn === "function") apply(handler.fn, target, [event]);
    });
  };
  return handler;
}

let makeSignal = null;
const illegal = {};

class AbortSignal extends EventTarget {
  #aborted = false; #reason; #steps = list(); #handler = null;
  constructor(key = undefined) {
    if (key !== illegal) throw new TypeError("Illegal constructor");
    super();
  }
  static abort(reason = undefined) {
    const signal = makeSignal();
    signal.#aborted = true;
    signal.#reason = reason === undefined ? abortError() : reason;
    return signal;
  }
  static timeout(milliseconds) {
    if (arguments.length === 0) throw new TypeError("AbortSignal.timeout: milliseconds is needed");
    const ms = +milliseconds;
    if (!(ms >= 0 && ms <= 9007199254740991))
      throw new TypeError("AbortSignal.timeout: milliseconds is out of range");
    const signal = makeSignal();
    core.setTimeout(() => AbortSignal_.abort(signal,
      new DOMException("The operation was aborted due to timeout", "TimeoutError")), p.mathFloor(ms));
    return signal;
  }
  static any(signals) {
    const sources = list();
    if (!isObject(signals)) throw new TypeError("AbortSignal.any: the argument is not iterable");
    const method = signals[iterator];
    if (typeof method !== "function") throw new TypeError("AbortSignal.any: the argument is not iterable");
    fromIterable(signals, method, (s) => {
      if (!isObject(s) || !(#aborted in s)) throw new TypeError("AbortSignal.any: an element is not an AbortSignal");
      append(sources, s);
    });
    const signal = makeSignal();
    for (let i = 0; i < sources.length; i++) {
      if (!sources[i].#aborted) continue;
      signal.#aborted = true;
      signal.#reason = sources[i].#reason;
      return signal;
    }
    for (let i = 0; i < sources.length; i++) {
      const source = sources[i];
      append(source.#steps, () => AbortSignal_.abort(signal, source.#reason));
    }
    return signal;
  }
  get aborted() {
    return this.#aborted;
  }
  get reason() {
    return this.#reason;
  }
  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }
  get onabort() {
    return this.#handler === null ? null : this.#handler.fn;
  }
  set onabort(v) {
    this.#handler ??= handlerOf(this, "abort");
    this.#handler.set(v);
  }
  static is(v) {
    return isObject(v) && #aborted in v;
  }
  static start(signal, reason) {
    if (signal.#aborted) return;
    signal.#aborted = true;
    signal.#reason = reason === undefined ? abortError() : reason;
    const steps = signal.#steps;
    signal.#steps = list();
    for (let i = 0; i < steps.length; i++) steps[i]();
    dispatchEvent(signal, new Event("abort"));
  }
  static onAbort(signal, fn) {
    append(signal.#steps, fn);
  }
}
const AbortSignalState = { __proto__: null, is: AbortSignal.is, onAbort: AbortSignal.onAbort };
const AbortSignal_ = { __proto__: null, abort: AbortSignal.start };
delete AbortSignal.is;
delete AbortSignal.start;
delete AbortSignal.onAbort;
makeSignal = () => new AbortSignal(illegal);
shape(AbortSignal, "AbortSignal");
const isAborted = p.getter(AbortSignal.prototype, "aborted");
const abortReason = p.getter(AbortSignal.prototype, "reason");

function abortError() {
  return new DOMException("This operation was aborted", "AbortError");
}

class AbortController {
  #signal = makeSignal();
  get signal() {
    return this.#signal;
  }
  abort(reason = undefined) {
    AbortSignal_.abort(this.#signal, reason);
  }
}
shape(AbortController, "AbortController");

module.exports = {
  AbortController, AbortSignal, CustomEvent, ErrorEvent, Event, EventTarget, MessageEvent,
  PromiseRejectionEvent,
  dispatchEvent, handlerOf, isAborted, abortReason,
  isAbortSignal: AbortSignalState.is,
  onAbort: AbortSignalState.onAbort,
  newSignal: makeSignal,
  abortSignal: AbortSignal_.abort,
};
