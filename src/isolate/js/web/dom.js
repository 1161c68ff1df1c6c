"use strict";
const p = require("./primordials");
const { Error, construct, define, isObject, shape } = p;

const codes = {
  __proto__: null,
  IndexSizeError: 1, HierarchyRequestError: 3, WrongDocumentError: 4, InvalidCharacterError: 5,
  NoModificationAllowedError: 7, NotFoundError: 8, NotSupportedError: 9, InUseAttributeError: 10,
  InvalidStateError: 11, SyntaxError: 12, InvalidModificationError: 13, NamespaceError: 14,
  InvalidAccessError: 15, TypeMismatchError: 17, SecurityError: 18, NetworkError: 19, AbortError: 20,
  URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23, InvalidNodeTypeError: 24,
  DataCloneError: 25,
};
const constants = {
  __proto__: null,
  INDEX_SIZE_ERR: 1, DOMSTRING_SIZE_ERR: 2, HIERARCHY_REQUEST_ERR: 3, WRONG_DOCUMENT_ERR: 4,
  INVALID_CHARACTER_ERR: 5, NO_DATA_ALLOWED_ERR: 6, NO_MODIFICATION_ALLOWED_ERR: 7, NOT_FOUND_ERR: 8,
  NOT_SUPPORTED_ERR: 9, INUSE_ATTRIBUTE_ERR: 10, INVALID_STATE_ERR: 11, SYNTAX_ERR: 12,
  INVALID_MODIFICATION_ERR: 13, NAMESPACE_ERR: 14, INVALID_ACCESS_ERR: 15, VALIDATION_ERR: 16,
  TYPE_MISMATCH_ERR: 17, SECURITY_ERR: 18, NETWORK_ERR: 19, ABORT_ERR: 20, URL_MISMATCH_ERR: 21,
  QUOTA_EXCEEDED_ERR: 22, TIMEOUT_ERR: 23, INVALID_NODE_TYPE_ERR: 24, DATA_CLONE_ERR: 25,
};

// Puts private fields on an object that another constructor made.
const Given = function (o) {
  return o;
};
class Data extends Given {
  #name; #message;
  constructor(o, message, name) {
    super(o);
    this.#name = name;
    this.#message = message;
  }
  static has(o) {
    return isObject(o) && #name in o;
  }
  static name(o) {
    return o.#name;
  }
  static message(o) {
    return o.#message;
  }
}

class DOMException {
  constructor(message = "", options = "Error") {
    // A real error, so that it has a stack and Error.isError() is true.
    const e = construct(Error, [], new.target);
    let name = "Error";
    if (isObject(options)) {
      if (options.name !== undefined) name = `${options.name}`;
      if ("cause" in options) define(e, "cause", options.cause, false);
    } else {
      name = `${options}`;
    }
    new Data(e, `${message}`, name);
    return e;
  }
  get name() {
    return Data.name(this);
  }
  get message() {
    return Data.message(this);
  }
  get code() {
    return codes[Data.name(this)] ?? 0;
  }
}
p.setPrototypeOf(DOMException.prototype, Error.prototype);
shape(DOMException, "DOMException", { constants });

module.exports = {
  DOMException,
  isDOMException: (v) => Data.has(v),
  domName: (v) => Data.name(v),
  domMessage: (v) => Data.message(v),
  fail(name, message) {
    throw new DOMException(message, name);
  },
};
