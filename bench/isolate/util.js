export const seed = __N__;

export class Stack {
    #items = [];
    push(x) {
        this.#items.push(x);
        return this;
    }
    *[Symbol.iterator]() {
        yield* this.#items;
    }
}

export const by = (list, key) =>
    list.reduce((m, x) => (m.set(x[key], (m.get(x[key]) ?? 0) + 1), m), new Map());
export const title = (s) => s.replace(/\b\w/g, (c) => c.toUpperCase());
