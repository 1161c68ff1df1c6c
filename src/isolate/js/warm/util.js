export class Table {
    #rows = new Map();
    constructor(name) {
        this.name = name;
    }
    add(row) {
        this.#rows.set(row.id, row);
        return this;
    }
    get size() {
        return this.#rows.size;
    }
    *[Symbol.iterator]() {
        yield* this.#rows.values();
    }
}

export const sum = (list) => list.reduce((a, b) => a + b, 0);
export const words = (s) => s.split(/\s+/).filter(Boolean);
export const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
