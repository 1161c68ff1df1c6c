/**
 * xterm.js writes its styles into <style> elements and into style attributes, both of which the
 * page's policy forbids. Its option documentOverride says which document makes its elements: this
 * one makes them so that the same styles arrive as constructed style sheets and as properties set by
 * script, which are no text that anybody could inject.
 */

/**
 * Colours that are not of the palette arrive as the attribute `style` of spans, which xterm.js makes
 * with the page's own document whatever the option says. So spans set that attribute by its object:
 * nothing a script may not do anyway.
 */
function setSpanAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === 'style') this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

export function letSpansBeStyled(): void {
  HTMLSpanElement.prototype.setAttribute = setSpanAttribute;
}

export class TerminalDocument {
  readonly #sheets: CSSStyleSheet[] = [];
  readonly #document: Document;
  /** To be given to the terminal. */
  readonly it: Document;

  constructor(document: Document) {
    this.#document = document;
    const createElement = (name: string) => this.#element(name);
    this.it = new Proxy(document, {
      get(target, key) {
        if (key === 'createElement') return createElement;
        const value: unknown = Reflect.get(target, key, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
      set: (target, key, value) => Reflect.set(target, key, value, target),
    });
  }

  /** Takes the styles away again. */
  finish(): void {
    const gone = new Set(this.#sheets.splice(0));
    this.#document.adoptedStyleSheets = this.#document.adoptedStyleSheets.filter(
      (sheet) => !gone.has(sheet),
    );
  }

  #element(name: string): HTMLElement {
    const element = this.#document.createElement(name);
    // One <style> is made by the page's own document, whatever the option says. So it is caught where
    // it is put: into an element that was made here.
    if (name === 'div')
      element.appendChild = <T extends Node>(child: T): T => {
        if (child instanceof HTMLStyleElement) this.#adopt(child);
        else Node.prototype.appendChild.call(element, child);
        return child;
      };
    return element;
  }

  /** The element stays outside the page; its text becomes a sheet of the document. */
  #adopt(element: HTMLStyleElement): void {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(element.textContent ?? '');
    this.#sheets.push(sheet);
    this.#document.adoptedStyleSheets = [...this.#document.adoptedStyleSheets, sheet];
    Object.defineProperty(element, 'textContent', {
      set: (text: string) => sheet.replaceSync(text),
    });
  }
}
