"use strict";
const p = require("./primordials");
const { TypeError, append, host, isObject, list, shape } = p;
const { EventTarget } = require("./events");
const { fail } = require("./dom");

const key = {};

class PerformanceEntry {
  #name; #type; #start; #duration;
  constructor(k, name, type, start, duration) {
    if (k !== key) throw new TypeError("Illegal constructor");
    this.#name = name;
    this.#type = type;
    this.#start = start;
    this.#duration = duration;
  }
  get name() {
    return this.#name;
  }
  get entryType() {
    return this.#type;
  }
  get startTime() {
    return this.#start;
  }
  get duration() {
    return this.#duration;
  }
  toJSON() {
    return { name: this.#name, entryType: this.#type, startTime: this.#start, duration: this.#duration };
  }
  static nameOf(e) {
    return e.#name;
  }
  static typeOf(e) {
    return e.#type;
  }
  static startOf(e) {
    return e.#start;
  }
}
const { nameOf, typeOf, startOf } = PerformanceEntry;
delete PerformanceEntry.nameOf;
delete PerformanceEntry.typeOf;
delete PerformanceEntry.startOf;
shape(PerformanceEntry, "PerformanceEntry");

function detailOf(options) {
  const detail = isObject(options) ? options.detail : undefined;
  return detail === undefined || detail === null ? null : require("./clone").structuredClone(detail);
}

class PerformanceMark extends PerformanceEntry {
  #detail;
  constructor(name, options = undefined) {
    if (arguments.length === 0) throw new TypeError("PerformanceMark: a name is needed");
    const start = isObject(options) && options.startTime !== undefined ? +options.startTime : host.now();
    if (!(start >= 0)) throw new TypeError("PerformanceMark: startTime is negative");
    super(key, `${name}`, "mark", start, 0);
    this.#detail = detailOf(options);
  }
  get detail() {
    return this.#detail;
  }
}
shape(PerformanceMark, "PerformanceMark");

class PerformanceMeasure extends PerformanceEntry {
  #detail;
  constructor(k, name, start, duration, detail) {
    super(k, name, "measure", start, duration);
    this.#detail = detail;
  }
  get detail() {
    return this.#detail;
  }
}
shape(PerformanceMeasure, "PerformanceMeasure");

class Performance extends EventTarget {
  #entries = list();
  constructor(k = undefined) {
    if (k !== key) throw new TypeError("Illegal constructor");
    super();
  }
  get timeOrigin() {
    this.#entries;
    return host.timeOrigin();
  }
  now() {
    this.#entries;
    return host.now();
  }
  mark(name, options = undefined) {
    p.needs(arguments.length, 1, "performance.mark");
    const mark = new PerformanceMark(name, options);
    append(this.#entries, mark);
    return mark;
  }
  #time(v) {
    if (typeof v === "number") return v;
    const name = `${v}`;
    for (let i = this.#entries.length - 1; i >= 0; i--)
      if (typeOf(this.#entries[i]) === "mark" && nameOf(this.#entries[i]) === name) return startOf(this.#entries[i]);
    return fail("SyntaxError", `The mark "${name}" does not exist`);
  }
  measure(name, startOrOptions = undefined, endMark = undefined) {
    if (arguments.length === 0) throw new TypeError("performance.measure: a name is needed");
    let start = 0, end = host.now(), detail = null;
    if (isObject(startOrOptions)) {
      const { start: s, end: e, duration } = startOrOptions;
      if (endMark !== undefined) throw new TypeError("performance.measure: options and an end mark exclude each other");
      if (s === undefined && e === undefined) throw new TypeError("performance.measure: start or end is needed");
      if (s !== undefined && e !== undefined && duration !== undefined)
        throw new TypeError("performance.measure: start, end and duration exclude each other");
      if (e !== undefined) end = this.#time(e);
      else if (duration !== undefined) end = this.#time(s) + +duration;
      start = s !== undefined ? this.#time(s) : duration !== undefined ? end - duration : 0;
      detail = detailOf(startOrOptions);
    } else {
      if (endMark !== undefined) end = this.#time(endMark);
      if (startOrOptions !== undefined) start = this.#time(startOrOptions);
    }
    const measure = new PerformanceMeasure(key, `${name}`, start, end - start, detail);
    append(this.#entries, measure);
    return measure;
  }
  #select(type, name) {
    const out = list();
    for (let i = 0; i < this.#entries.length; i++) {
      const e = this.#entries[i];
      if ((type === undefined || typeOf(e) === type) && (name === undefined || nameOf(e) === name)) append(out, e);
    }
    p.arraySort(out, (a, b) => startOf(a) - startOf(b));
    return p.toArray(out);
  }
  getEntries() {
    return this.#select();
  }
  getEntriesByType(type) {
    return this.#select(`${type}`);
  }
  getEntriesByName(name, type = undefined) {
    return this.#select(type === undefined ? undefined : `${type}`, `${name}`);
  }
  #clear(type, name) {
    const kept = list();
    for (let i = 0; i < this.#entries.length; i++) {
      const e = this.#entries[i];
      if (typeOf(e) !== type || (name !== undefined && nameOf(e) !== `${name}`)) append(kept, e);
    }
    this.#entries = kept;
  }
  clearMarks(name = undefined) {
    this.#clear("mark", name);
  }
  clearMeasures(name = undefined) {
    this.#clear("measure", name);
  }
  toJSON() {
    return { timeOrigin: this.timeOrigin };
  }
}
shape(Performance, "Performance");

module.exports = { Performance, PerformanceEntry, PerformanceMark, PerformanceMeasure, performance: new Performance(key) };
