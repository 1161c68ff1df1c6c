// Where we and node 22 differ, and why. Each excuse must be used, or diff.mjs complains.
const spaces = (t) => t.replaceAll("%20", " ");
export const known = [
  {
    why: "the URL standard encodes ^ in a path since 2024",
    test: (c, ours, theirs) => c.includes("^") && ours.replaceAll("%5E", "^") === theirs.replaceAll("%5E", "^"),
  },
  {
    why: "the URL standard keeps the last space of an opaque path as %20 since 2025",
    test: (c, ours, theirs) => /URL\(".*[a-z]:[^/].* [?#]/.test(c) && ours.includes("%20") && spaces(ours) === spaces(theirs),
  },
  {
    why: "node resolves a relative reference with a fragment against an opaque base; the standard fails",
    test: (c, ours, theirs) => /new URL\(.*#.*,"(mailto:a|data:x,y|about:blank)"\)/.test(c) && ours === "throws TypeError" &&
      /^"(mailto:a|data:x,y|about:blank)/.test(theirs),
  },
  {
    why: "node does not apply the bidi rule to a label that begins with a digit",
    test: (c, ours) => c.includes("1א.com") && ours === "throws TypeError",
  },
  {
    why: "the URL standard takes an ASCII domain as it is since 2026, whatever its xn-- labels decode to",
    test: (c, ours, theirs) => /xn--/i.test(c) && /xn--/.test(ours) && theirs === "throws TypeError",
  },
  {
    why: "node clones its own DOMException and AbortController as plain objects",
    test: (c, ours, theirs) => /structuredClone/.test(c) && /new (DOMException|AbortController|Event|Headers|URL|ReadableStream)\(|crypto/.test(c) &&
      (ours === "throws DOMException DataCloneError" || c.includes("DOMException")) && theirs !== ours,
  },
  {
    why: "node's host setter drops the port of a URL that had no host",
    test: (c, ours) => /u\.host=.*"foo:\/\.\/\/p"/.test(c) && /:(80|5|443)\/\/p"$/.test(ours),
  },
  {
    why: "node's port setter removes the port when the value does not begin with a digit; the standard ignores it",
    test: (c, ours) => /u\.port="[^0-9]/.test(c) && /h:1\/p/.test(ours),
  },
  {
    why: "the path of a non-special URL set to '..' is '/' in the standard",
    test: (c, ours) => c.includes('u.pathname=".."') && ours.endsWith('/"'),
  },
  {
    why: "new URLSearchParams(null) is 'null=' by WebIDL, as in browsers",
    test: (c) => c.includes("new URLSearchParams(null)"),
  },
  {
    why: "a script cannot tell an arguments object, so structuredClone clones it; the standard refuses",
    test: (c) => /structuredClone.*return arguments/.test(c),
  },
  {
    why: "node's function has no declared parameters",
    test: (c) => c === "structuredClone.length",
  },
  {
    why: "node forgets currentTarget after the first listener, and does not honour passive",
    test: (c) => c.includes("e.currentTarget===t,e.eventPhase") || c.includes("passive:true"),
  },
  {
    why: "dispatching an event twice is an InvalidStateError in the standard, an Error in node",
    test: (c, ours) => c.includes("t.dispatchEvent(e)}catch(err)") && ours === "DOMException InvalidStateError",
  },
  {
    why: "a number out of range is a TypeError in WebIDL, a RangeError in node",
    test: (c) => c === "AbortSignal.timeout(-1)",
  },
  {
    why: "node does not make all members enumerable, or has one more",
    test: (c) => /Object\.keys\((AbortSignal|Request)\.prototype/.test(c),
  },
  {
    why: "node's multipart parser does not take a quoted boundary",
    test: (c) => c.includes('boundary=\\"x\\"') || c.includes('boundary="x"'),
  },
  {
    why: "a non-view is a TypeError in WebIDL",
    test: (c) => c === "crypto.getRandomValues([])",
  },
  {
    why: "key usages are in the order of the standard's list, as in browsers; node keeps the caller's",
    test: (c, ours, theirs) => /k\.usages|exportKey\('jwk'/.test(c) && ours.replace('"sign","verify"', '"verify","sign"').replace('"encrypt","decrypt"', '"decrypt","encrypt"') === theirs,
  },
  {
    why: "node misspells InvalidAccessError",
    test: (c, ours, theirs) => ours === "throws DOMException InvalidAccessError" && theirs === "throws DOMException InvalidAccessException",
  },
  {
    why: "node looks at an Ed25519 JWK's key_ops before the usages; the standard the other way round",
    test: (c, ours, theirs) => c.includes('"alg":"Ed25519"') && ours === "throws DOMException SyntaxError" && theirs === "throws DOMException DataError",
  },
  {
    why: "a public key as pkcs8 or a private one as spki is an InvalidAccessError in the standard",
    test: (c, ours, theirs) => /exportKey\('(pkcs8|spki)'/.test(c) && ours === "throws DOMException InvalidAccessError" && theirs === "throws DOMException NotSupportedError",
  },
  {
    why: "an HMAC key of no length is an OperationError in the standard",
    test: (c) => c.includes("length:0},true,['sign']"),
  },
];
