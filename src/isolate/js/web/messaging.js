"use strict";
const p = require("./primordials");
const { TypeError, append, core, isObject, list, shape } = p;
const { EventTarget, MessageEvent, dispatchEvent, handlerOf } = require("./events");
const { structuredClone } = require("./clone");

const key = {};

class MessagePort extends EventTarget {
  #other = null; #queue = list(); #started = false; #closed = false; #onmessage = null; #onerror = null;
  constructor(k = undefined) {
    if (k !== key) throw new TypeError("Illegal constructor");
    super();
  }
  postMessage(message, options = undefined) {
    if (arguments.length === 0) throw new TypeError("postMessage: a message is needed");
    // The transfer list itself, or an object that has it.
    const transfer = isObject(options) && typeof options[p.iterator] === "function"
      ? { __proto__: null, transfer: options } : options;
    const data = structuredClone(message, transfer);
    const other = this.#other;
    if (this.#closed || other === null || other.#closed) return;
    append(other.#queue, data);
    if (other.#started) MessagePort_.deliver(other);
  }
  start() {
    if (this.#started) return;
    this.#started = true;
    for (let i = 0; i < this.#queue.length; i++) MessagePort_.deliver(this);
  }
  close() {
    this.#closed = true;
    if (this.#other !== null) this.#other.#closed = true;
  }
  get onmessage() {
    return this.#onmessage === null ? null : this.#onmessage.fn;
  }
  set onmessage(v) {
    this.#onmessage ??= handlerOf(this, "message");
    this.#onmessage.set(v);
    this.start();
  }
  get onmessageerror() {
    return this.#onerror === null ? null : this.#onerror.fn;
  }
  set onmessageerror(v) {
    this.#onerror ??= handlerOf(this, "messageerror");
    this.#onerror.set(v);
  }
  static join(a, b) {
    a.#other = b;
    b.#other = a;
  }
  // One message per task, in order.
  static deliver(port) {
    core.setTimeout(() => {
      if (port.#queue.length === 0) return;
      const data = port.#queue[0], rest = list();
      for (let i = 1; i < port.#queue.length; i++) append(rest, port.#queue[i]);
      port.#queue = rest;
      dispatchEvent(port, new MessageEvent("message", { __proto__: null, data }));
    }, 0);
  }
}
const MessagePort_ = { __proto__: null, join: MessagePort.join, deliver: MessagePort.deliver };
delete MessagePort.join;
delete MessagePort.deliver;
shape(MessagePort, "MessagePort");

class MessageChannel {
  #port1; #port2;
  constructor() {
    this.#port1 = new MessagePort(key);
    this.#port2 = new MessagePort(key);
    MessagePort_.join(this.#port1, this.#port2);
  }
  get port1() {
    return this.#port1;
  }
  get port2() {
    return this.#port2;
  }
}
shape(MessageChannel, "MessageChannel");

module.exports = { MessageChannel, MessagePort };
