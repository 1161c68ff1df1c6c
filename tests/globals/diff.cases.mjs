// Expressions for diff.mjs. Random ones come from a fixed seed, so that a failure can be repeated.
export const cases = [];
const add = (...list) => cases.push(...list);
const q = JSON.stringify;

let seed = 20261115;
const rand = (n) => {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return (seed >>> 8) % n;
};
const pick = (list) => list[rand(list.length)];

// ---- URL
const urlShow = (u) => `(u=>[u.href,u.origin,u.protocol,u.username,u.password,u.host,u.hostname,u.port,u.pathname,u.search,u.hash,[...u.searchParams]])(${u})`;
const urls = [
  "http://example.com", "HTTP://EXAMPLE.com:80/", "https://user:pa%20ss@host:8080/p/a/t/h?query=string#hash",
  "http://a/b/../c/./d//e/%2e%2e/f", "http://a/..", "http:a", "http:/a", "http:\\\\a\\b", "//a", "/a", "a", "",
  "?q", "#f", "mailto:x@y.z", "data:text/plain,hello world  ", "javascript:alert(1)", "blob:https://a.b/c", "about:blank",
  "file:///c:/x", "file:c:\\x", "file://host/share/..", "file:///C|/x/../..", "file://localhost/x", "file:?q", "file:",
  "http://1.2.3.4/", "http://0x7f.1/", "http://127.1", "http://256.1.1.1", "http://1.2.3.4.5", "http://0300.168.0.xF0",
  "http://4294967295", "http://4294967296", "http://1e3", "http://[::1]/", "http://[1:2::3]:80", "http://[::ffff:1.2.3.4]", "http://[::1", "http://[1:2:3:4:5:6:7:8:9]",
  "http://[::1%25eth0]/", "http://faß.de", "http://xn--fa-hia.de", "http://bücher.example", "http://日本語.jp/", "http://ａ.com", "http://a。b",
  "http://xn--a", "http://xn--0", "http://\u00ad", "http://a\u200db", "http://א1.com", "http://1א.com", "http://ab--c.com", "http://-a-.com", "http://a..b", "http://.", "http://a.",
  "http://a b", "http://a%20b", "http://a<b", "http://a^b", "http://a|b", "http://a%00b", "http://%61", "http://%ff", "http://%zz", "http://a_b",
  "http://a:b", "http://a:65535", "http://a:65536", "http://a:0", "http://a:", "http://a:00080", "http://:80", "http://@a", "http://u@a", "http://:p@a", "http://u:@a", "http://u@p@a", "http://a@b:c@d",
  "http://a/ b?c d#e f", "http://a/\u00e9?\u00e9#\u00e9", "http://a/\ud800", "http://a/?'\"<>`", "http://a/#'\"<>`{}", "foo:/?'\"<>`", "http://a/{}|^`", "http://a/%7Bx",
  "foo://a b", "foo://A.B/c", "foo://a:80/", "foo://[::1]", "foo:a/../b", "foo:/a/../b", "foo:///a", "foo://", "foo:", "foo:?a#b", "foo:// /", "foo://%41", "foo://x:99999",
  "ws://a:80", "wss://a:443", "ftp://a:21", "ws:a", "  http://a  ", "h\nt\ttp://a/b\r\nc", "\u0000http://a", "1http://a", "http+x://a", "-x:a",
  "http://a?b?c", "http://a#b#c", "http://a/?a=b&c=d&&=&e", "http://a/;p?q", "http://a//", "http://a/.//b", "web+demo:/.//not-a-host/", "non-special:opaque  ?x", "non-special:opaque  #x",
  "https://example.com/%", "https://example.com/%2", "https://ex ample.com", "https:\\\\x", "http://www.example.com:443", "http:////a", "http:///a/b", "https://\u2603.net/", "http://GOO\u3000goo.com", "http://你好你好", "http://\ufdd0zyx.com", "http://%ef%b7%90zyx.com", "http://ho%20st/", "http://hello%00", "http://192.168.0.257", "http://[google.com]", "http://\ud83d\udca9", "http://a.b.c.xn--pokxncvks/", "http://a.b-.co", "http://ab\u00ado.com",
];
const bases = [null, "http://base.example/dir/file?q#f", "file:///d:/x/y", "mailto:a", "about:blank", "foo://h/p", "data:x,y"];
for (const u of urls) {
  add(urlShow(`new URL(${q(u)})`));
  for (const b of bases.slice(1)) add(`new URL(${q(u)},${q(b)}).href`);
}
const bits = ["http:", "https:", "file:", "foo:", "//", "/", "\\", ":", "@", "?", "#", "a", "B", "1", "%41", "%", "..", ".", "c|", "C:", "é", "ß", "xn--", "[::1]", "[", "]", "127.0.0.1", "0x1", " ", "\t", "&", "=", "+", "\u{1f600}", "日", "-", "_", "\ud800", "%2e", "8080", "'", "\"", "<", "^", "|", "`", "{"];
for (let i = 0; i < 2500; i++) {
  let u = pick(["", "http://", "foo://", "file://", "http:", "foo:"]);
  for (let n = rand(9); n >= 0; n--) u += pick(bits);
  add(rand(3) ? `new URL(${q(u)}).href` : `new URL(${q(u)},${q(pick(bases.slice(1)))}).href`);
}
const setters = ["href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
const settees = ["https://u:p@h:1/p?q#f", "http://h/", "file:///x", "mailto:x", "foo://h:1/p", "foo:/.//p"];
const setValues = ["", "x", "http", "https:", "ftp", "foo", "file", "a:80", "a:b", "[::1]:5", "0", "65536", "99x", "é", "/a b", "?a=b", "#x y", "//x", "x/y?z#w", "\\x", "@", "h:443", "1.2.3", "%41", "a\tb", "..", "u@h"];
for (const s of setters) for (const u of settees) for (const v of setValues)
  add(`(u=>{u.${s}=${q(v)};return u.href})(new URL(${q(u)}))`);
add("URL.canParse('x')", "URL.canParse('x','http://a')", "URL.canParse()", "new URL()", "URL('http://a')", "new URL(Symbol())",
  "JSON.stringify({u:new URL('http://a')})", "`${new URL('http://a')}`", "Object.keys(URL.prototype).sort()", "URL.length", "URL.name",
  "Object.prototype.toString.call(new URL('http://a'))", "URL.prototype.href", "(u=>u.searchParams===u.searchParams)(new URL('http://a'))",
  "(u=>{u.searchParams.append('a','b c');return u.href})(new URL('http://a?x#y'))", "(u=>{u.searchParams.delete('x');return u.href})(new URL('http://a?x#y'))",
  "(u=>{u.search='?a=1';return [...u.searchParams]})(new URL('http://a?x#y'))", "(u=>{u.href='http://b?z=1';return [...u.searchParams]})(new URL('http://a?x#y'))");
add("URL.parse('x')", "URL.parse('x','http://a').href", "URL.parse('http://a') instanceof URL", "URL.parse()", "new Response('a\u00e9').bytes()", "new Blob(['x']).bytes()",
  "new Request('http://a',{method:'POST',body:'x'}).bytes()", "typeof navigator.userAgent");
// ---- URLSearchParams
const inits = ["''", "'?a=b&c=d'", "'a=b&a=c'", "'a&b=&=c&&'", "'a+b=c%20d%zz%f0%9f%98%80'", "{a:1,b:[1,2]}", "[['a','b'],['c','d']]", "[['a']]", "new Map([['x','y']])", "new URLSearchParams('a=b')", "undefined", "null", "5", "'\\ud800'", "[[1,2,3]]", "{[Symbol()]:1}", "new URL('http://a?b=c').searchParams"];
for (const i of inits) add(`(s=>[String(s),[...s],s.size,[...s.keys()],[...s.values()]])(new URLSearchParams(${i}))`);
for (const m of ["s.append('x','y z')", "s.delete('a')", "s.delete('a','2')", "s.get('a')", "s.get('no')", "s.getAll('a')", "s.has('a')", "s.has('a','9')", "s.set('a','n')", "s.set('n','n')", "s.sort()", "s.forEach((v,k)=>r.push(k+v))", "s.append('a')", "s.get()"])
  add(`(s=>{const r=[];const v=${m};return [v,r,String(s)]})(new URLSearchParams('b=0&a=1&a=2&\u{1f600}=3&\uffff=4'))`);
add("Object.getPrototypeOf(new URLSearchParams('a=b').entries())[Symbol.toStringTag]", "new URLSearchParams('a=b').entries().next()", "(s=>{const r=[];for(const [k] of s){r.push(k);if(r.length<4)s.append('n'+r.length,1)}return r})(new URLSearchParams('a=b'))");

// ---- encoding
for (const t of ["", "abc", "é", "€", "😀", "\ud800", "\udc00x", "a\0b", "\ufeffx"]) add(`new TextEncoder().encode(${q(t)})`, `new TextDecoder().decode(new TextEncoder().encode(${q(t)}))`,
  `((u)=>[new TextEncoder().encodeInto(${q(t + t + t)},u),u])(new Uint8Array(5))`);
add("new TextEncoder().encode()", "new TextEncoder().encode(undefined)", "new TextEncoder().encode(null)", "new TextEncoder().encode(5)", "new TextEncoder().encode(Symbol())", "new TextEncoder().encoding", "TextEncoder()", "TextEncoder.prototype.encode.call({},'a')",
  "new TextEncoder().encodeInto('a',[])", "new TextEncoder().encodeInto('aé',new Uint8Array(0))");
for (const l of ["utf8", "UTF-8", " utf-8 ", "utf-16", "utf-16le", "utf-16be", "latin1", "ascii", "iso-8859-1", "windows-1252", "unicode-1-1-utf-8", "nope", "", "utf-7", "ucs-2"])
  add(`new TextDecoder(${q(l)}).encoding`, `new TextDecoder(${q(l)}).decode(new Uint8Array([0x80,0x41,0xff,0x9f,0x20,0xac]))`);
add("(d=>[d.fatal,d.ignoreBOM,d.encoding])(new TextDecoder('utf-8',{fatal:1,ignoreBOM:'x'}))", "new TextDecoder('utf-8',5)", "new TextDecoder().decode([])", "new TextDecoder().decode('x')", "new TextDecoder().decode(null)", "new TextDecoder().decode(undefined)",
  "new TextDecoder().decode(new DataView(new Uint8Array([65,66,67]).buffer,1))", "new TextDecoder().decode(new Uint16Array([0x4241]))", "new TextDecoder().decode(new Uint8Array([65,66,67]).buffer)",
  "new TextDecoder('utf-8',{ignoreBOM:true}).decode(new Uint8Array([0xef,0xbb,0xbf,65]))", "(d=>[d.decode(new Uint8Array([0xef,0xbb]),{stream:true}),d.decode(new Uint8Array([0xbf,65]),{stream:true}),d.decode(new Uint8Array([0xef,0xbb,0xbf]))])(new TextDecoder())",
  "new TextDecoder('utf-16le').decode(new Uint8Array([0xff,0xfe,65,0]))", "new TextDecoder('utf-16be').decode(new Uint8Array([0xfe,0xff,0,65]))");
const byteBits = [0x00, 0x41, 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xa0, 0xed, 0x9f, 0xef, 0xbb, 0xbf, 0xf0, 0x90, 0xf4, 0x8f, 0xf5, 0xff, 0xe2, 0x82, 0xac, 0xd8, 0xdc];
for (let i = 0; i < 600; i++) {
  const bytes = [];
  for (let n = rand(10); n >= 0; n--) bytes.push(pick(byteBits));
  const enc = pick(["utf-8", "utf-8", "utf-8", "utf-16le", "utf-16be", "latin1"]);
  const opts = pick(["{}", "{}", "{fatal:true}", "{ignoreBOM:true}"]);
  const cut = rand(bytes.length + 1), cut2 = cut + rand(bytes.length - cut + 1);
  add(`new TextDecoder(${q(enc)},${opts}).decode(new Uint8Array([${bytes}]))`);
  add(`(d=>[d.decode(new Uint8Array([${bytes.slice(0, cut)}]),{stream:true}),d.decode(new Uint8Array([${bytes.slice(cut, cut2)}]),{stream:true}),d.decode(new Uint8Array([${bytes.slice(cut2)}]))])(new TextDecoder(${q(enc)},${opts}))`);
}
// ---- base64
for (const t of ["", "a", "ab", "abc", "abcd", "é", "€", "\0\xff", "null"]) add(`btoa(${q(t)})`, `atob(${q(t)})`);
for (let i = 0; i < 200; i++) {
  let t = "";
  for (let n = rand(10); n > 0; n--) t += pick(["A", "b", "9", "+", "/", "=", " ", "\n", "-", "_", "\f", "\v", "é", "QQ", "=="]);
  add(`atob(${q(t)})`);
}
add("btoa()", "atob()", "btoa(null)", "atob(null)", "btoa(12)", "atob(' aGk= ')", "atob('aGk')", "atob('aGk==')", "btoa.length", "atob.name", "btoa(Symbol())");

// ---- structuredClone
for (const v of ["1", "'x'", "null", "undefined", "1n", "true", "-0", "NaN", "Symbol()", "()=>1", "[]", "[1,,3]", "Object.assign([1,2],{x:3})", "{}", "{a:{b:[1]}}", "new Date(5)", "new Date(NaN)", "/a/gi", "Object.assign(/a/g,{lastIndex:3})",
  "new Map([[{a:1},new Set([1,'x'])]])", "new Error('m')", "new TypeError('m')", "Object.assign(new Error('m'),{name:'RangeError'})", "Object.assign(new Error('m'),{name:'X'})", "new Error('a',{cause:{b:1}}).cause", "new Boolean(false)", "new Number(3)", "new String('abc')", "Object(1n)", "Object(Symbol())",
  "new Uint8Array([1,2,3])", "new Uint8Array([1,2,3,4]).subarray(1,3)", "new Float64Array([1.5])", "new BigInt64Array([5n])", "new DataView(new ArrayBuffer(4),1,2).byteLength", "new ArrayBuffer(3)", "new ArrayBuffer(2,{maxByteLength:8}).maxByteLength", "Promise.resolve()", "new WeakMap()", "new WeakSet()", "new WeakRef({})", "globalThis.Proxy&&new Proxy({a:1},{})",
  "new (class X{a=1;#b=2;get c(){return 3}})", "Object.create({inherited:1})", "Object.defineProperty({a:1},'h',{value:1})", "{get a(){return 5}}", "{get a(){throw new TypeError}}", "{[Symbol()]:1,a:2}", "{a:()=>1}", "[Symbol()]", "new DOMException('m','AbortError')", "Object.create(null)", "new AbortController()", "new URL('http://a')", "new Headers()", "new Blob(['abc'],{type:'a/b'})", "{a:undefined}", "new Array(3)", "Array(5)", "arguments=>1", "(function(){return arguments})(1,2)", "new Set([new Map()])", "new (class E2 extends Error{})('q')", "new (class M extends Map{})([[1,2]])", "new ReadableStream()", "JSON", "Math", "function*(){}", "(function*(){})()", "new Event('x')", "crypto", "[new Date(1),new Date(1)]"])
  add(`structuredClone(${v})`, `(v=>Object.getPrototypeOf(v)===Object.getPrototypeOf(structuredClone(v)))(Object(${v}))`);
add("(a=>{a.self=a;const c=structuredClone(a);return [c.self===c,c!==a]})({})", "(b=>{const c=structuredClone({x:b,y:b});return [c.x===c.y,c.x!==b]})({})", "(b=>{const c=structuredClone([new Uint8Array(b),new Uint8Array(b,1)]);return [c[0].buffer===c[1].buffer,c[1].byteOffset]})(new ArrayBuffer(4))",
  "(b=>{const c=structuredClone(b,{transfer:[b]});return [b.byteLength,c.byteLength]})(new ArrayBuffer(4))", "(b=>{const c=structuredClone(new Uint8Array(b),{transfer:[b]});return [b.byteLength,c.length]})(new ArrayBuffer(4))", "(b=>structuredClone(1,{transfer:[b,b]}))(new ArrayBuffer(4))", "structuredClone(1,{transfer:[{}]})", "structuredClone(1,{transfer:1})", "structuredClone()", "structuredClone(1,{transfer:[]})",
  "(b=>{try{structuredClone({get a(){throw 1}},{transfer:[b]})}catch{}return b.byteLength})(new ArrayBuffer(4))", "(b=>{structuredClone(1,{transfer:[b]});return structuredClone(b)})(new ArrayBuffer(4))", "structuredClone(new Error('m')).message", "structuredClone(new TypeError('m')) instanceof TypeError", "Object.hasOwn(structuredClone(new Error()),'message')", "structuredClone(new DOMException('m','AbortError')).code", "(o=>Object.keys(structuredClone(o)))({b:1,a:2,1:3})", "structuredClone({__proto__:{x:1},y:2})", "Object.hasOwn(structuredClone(JSON.parse('{\"__proto__\":1}')),'__proto__')", "structuredClone(Object.assign(new Date(3),{x:1})).x", "structuredClone.length", "structuredClone.name");

// ---- DOMException, events, abort
add("new DOMException()", "(e=>[e.name,e.message,e.code,String(e),e instanceof Error,typeof e.stack])(new DOMException('m','NotFoundError'))", "new DOMException('m',{name:'DataCloneError',cause:5}).cause", "new DOMException('m',{name:'DataCloneError'}).code", "DOMException.ABORT_ERR", "DOMException.prototype.ABORT_ERR", "DOMException.length", "Object.prototype.toString.call(new DOMException())", "DOMException('x')", "Object.keys(DOMException.prototype).filter(k=>k!==k.toUpperCase()).sort()", "Object.getPrototypeOf(DOMException.prototype)===Error.prototype", "Object.getPrototypeOf(DOMException)===Function.prototype", "DOMException.prototype.name", "Object.keys(new DOMException('a')).length", "new DOMException('m',undefined).name", "Object.hasOwn(new DOMException('m'),'message')");
add("(e=>[e.type,e.bubbles,e.cancelable,e.composed,e.defaultPrevented,e.eventPhase,e.target,e.currentTarget,e.isTrusted,typeof e.timeStamp,e.cancelBubble,e.returnValue,e.composedPath()])(new Event('x',{bubbles:1,cancelable:true}))", "new Event()", "Event('x')", "new Event(undefined).type", "new Event('x',5)", "Event.AT_TARGET", "(e=>{e.preventDefault();return e.defaultPrevented})(new Event('x'))", "(e=>{e.preventDefault();return e.defaultPrevented})(new Event('x',{cancelable:true}))",
  "new CustomEvent('x',{detail:5}).detail", "new CustomEvent('x').detail", "new CustomEvent('x') instanceof Event", "Object.prototype.toString.call(new CustomEvent('x'))",
  "(t=>{const r=[];t.addEventListener('a',e=>r.push(1));t.addEventListener('a',{handleEvent(e){r.push(this===t,e.target===t,e.currentTarget===t,e.eventPhase)}});const v=t.dispatchEvent(new Event('a'));return [r,v]})(new EventTarget)",
  "(t=>{const r=[];const f=()=>r.push(1);t.addEventListener('a',f);t.addEventListener('a',f);t.addEventListener('a',f,true);t.dispatchEvent(new Event('a'));t.removeEventListener('a',f);t.dispatchEvent(new Event('a'));return r.length})(new EventTarget)",
  "(t=>{const r=[];t.addEventListener('a',()=>r.push(1),{once:true});t.dispatchEvent(new Event('a'));t.dispatchEvent(new Event('a'));return r})(new EventTarget)", "(t=>{const r=[];t.addEventListener('a',e=>{r.push(1);e.stopImmediatePropagation()});t.addEventListener('a',e=>r.push(2));t.dispatchEvent(new Event('a'));return r})(new EventTarget)",
  "(t=>{t.addEventListener('a',e=>e.preventDefault());return [t.dispatchEvent(new Event('a',{cancelable:true})),t.dispatchEvent(new Event('a'))]})(new EventTarget)", "(t=>{t.addEventListener('a',e=>e.preventDefault(),{passive:true});return t.dispatchEvent(new Event('a',{cancelable:true}))})(new EventTarget)",
  "(t=>{const c=new AbortController,r=[];t.addEventListener('a',()=>r.push(1),{signal:c.signal});t.dispatchEvent(new Event('a'));c.abort();t.dispatchEvent(new Event('a'));return r})(new EventTarget)", "(t=>{const r=[];t.addEventListener('a',()=>{r.push(1);t.addEventListener('a',()=>r.push(2))});t.dispatchEvent(new Event('a'));return r})(new EventTarget)", "(t=>{const r=[];const g=()=>r.push(2);t.addEventListener('a',()=>{r.push(1);t.removeEventListener('a',g)});t.addEventListener('a',g);t.dispatchEvent(new Event('a'));return r})(new EventTarget)",
  "new EventTarget().dispatchEvent({})", "new EventTarget().addEventListener('a',null)", "new EventTarget().addEventListener('a')", "(t=>{const e=new Event('a');let x;t.addEventListener('a',()=>{try{t.dispatchEvent(e)}catch(err){x=err}});t.dispatchEvent(e);return x})(new EventTarget)", "new (class extends EventTarget{constructor(){super();this.x=1}}).x");
add("(s=>[s.aborted,s.reason,s.onabort])(new AbortController().signal)", "(c=>{c.abort();return [c.signal.aborted,c.signal.reason,c.signal.reason.code]})(new AbortController)", "(c=>{c.abort(5);return c.signal.reason})(new AbortController)", "(c=>{c.abort(1);c.abort(2);return c.signal.reason})(new AbortController)", "AbortSignal.abort().reason", "AbortSignal.abort(7).reason", "AbortSignal.abort(undefined).reason", "AbortSignal.abort().throwIfAborted()", "AbortSignal.abort(9).throwIfAborted()", "new AbortController().signal.throwIfAborted()", "new AbortSignal()",
  "(c=>{const r=[];c.signal.onabort=function(e){r.push(this===c.signal,e.type,e.target===c.signal)};c.signal.addEventListener('abort',()=>r.push(2));c.abort();return r})(new AbortController)", "(c=>{let n=0;c.signal.onabort=()=>n++;c.signal.onabort=null;c.abort();return n})(new AbortController)", "new Promise(r=>{AbortSignal.timeout(5).onabort=function(){r([this.reason,this.reason.name])}})", "AbortSignal.timeout(-1)", "AbortSignal.timeout()",
  "(c=>{const s=AbortSignal.any([c.signal,new AbortController().signal]);const r=[s.aborted];s.addEventListener('abort',()=>r.push('e'));c.abort(3);return [r,s.reason]})(new AbortController)", "AbortSignal.any([AbortSignal.abort(1),AbortSignal.abort(2)]).reason", "AbortSignal.any([]).aborted", "AbortSignal.any([5])", "AbortSignal.any()", "(c=>{const a=AbortSignal.any([c.signal]),b=AbortSignal.any([a]);c.abort(4);return [b.aborted,b.reason]})(new AbortController)", "Object.prototype.toString.call(new AbortController)", "Object.keys(AbortSignal.prototype).sort()", "new AbortController().signal instanceof EventTarget");

// ---- Headers
for (const h of ["undefined", "{}", "{a:'b'}", "{A:'b',a:'c'}", "[['a','b'],['a','c'],['B','d']]", "[['a']]", "[['a','b','c']]", "null", "5", "'x'", "new Headers({x:'y'})", "new Map([['a','b']])", "{'a b':'c'}", "{'':'c'}", "{a:'b\\nc'}", "{a:' b\\t'}", "{a:'\\0'}", "{a:'é'}", "{a:'€'}", "{'é':'a'}", "{a:null}", "{a:undefined}", "{a:{}}", "[['set-cookie','a=1'],['Set-Cookie','b=2'],['x','y']]", "{a:'\\n b \\r'}", "{[Symbol()]:'a'}", "(function*(){yield ['a','b']})()", "[]", "{a:''}"])
  add(`[...new Headers(${h})]`);
for (const m of ["h.append('a','9')", "h.append('n','1')", "h.delete('A')", "h.delete('no')", "h.get('A')", "h.get('no')", "h.has('b')", "h.has('no')", "h.set('A','z')", "h.set('n','z')", "h.getSetCookie()", "h.get('set-cookie')", "h.forEach((v,k)=>r.push(k,v))", "[...h.keys()]", "[...h.values()]", "h.append('a')", "h.get()", "h.get('a b')", "h.set('a','\\n')", "h.set('a','b\\nc')", "h.delete('')", "h.forEach(5)", "h.entries().next()", "h.append(Symbol(),'a')"])
  add(`(h=>{const r=[];const v=${m};return [v,r,[...h]]})(new Headers([['b','1'],['a','2'],['A','3'],['set-cookie','x=1'],['set-cookie','y=2']]))`);
add("Object.prototype.toString.call(new Headers().entries())", "Headers.prototype.get.call({},'a')", "Headers()", "Object.keys(Headers.prototype).sort()", "Headers.prototype[Symbol.iterator]===Headers.prototype.entries", "Headers.name", "new Headers().keys()[Symbol.iterator] instanceof Function");

// ---- Response, Request
const bodies = ["undefined", "null", "''", "'héllo'", "new Uint8Array([1,2,255])", "new Uint8Array([1,2,3]).subarray(1)", "new ArrayBuffer(3)", "new DataView(new ArrayBuffer(4),2)", "new Blob(['abc'],{type:'Text/X'})", "new Blob(['abc'])", "new URLSearchParams('a=b c')", "5", "{}", "[1,2]", "true"];
for (const b of bodies) {
  add(`(async r=>[r.headers.get('content-type'),r.bodyUsed,await r.text(),r.bodyUsed])(new Response(${b}))`, `new Response(${b}).arrayBuffer()`, `(b=>[b.size,b.type])(await new Response(${b}).blob())`, `(r=>r.body===null)(new Response(${b}))`,
    `(async r=>[r.headers.get('content-type'),r.bodyUsed,await r.text(),r.bodyUsed])(new Request('http://a',{method:'POST',body:${b}}))`);
}
for (const i of ["{}", "{status:404}", "{status:199}", "{status:600}", "{status:204}", "{status:'201'}", "{statusText:'x y'}", "{statusText:'a\\nb'}", "{statusText:'é'}", "{headers:{a:'b'}}", "{headers:{'content-type':'x/y'}}", "null", "5", "{status:101}", "{status:304}", "{status:200.9}"])
  add(`(r=>[r.status,r.statusText,r.ok,r.type,r.url,r.redirected,[...r.headers]])(new Response('b',${i}))`, `(r=>[r.status,r.ok,[...r.headers]])(new Response(null,${i}))`);
add("(r=>[r.status,r.type,r.ok,[...r.headers]])(Response.error())", "Response.error().headers.set('a','b')", "(r=>[r.status,[...r.headers]])(Response.redirect('http://a/b c'))", "Response.redirect('x')", "Response.redirect('http://a',200)", "Response.redirect('http://a',308).status", "Response.redirect('http://a').headers.set('a','b')", "(async r=>[r.status,[...r.headers],await r.text()])(Response.json({a:[1]}))", "(async r=>[r.status,[...r.headers],await r.text()])(Response.json(1,{status:400,headers:{'content-type':'x/y'}}))", "Response.json()", "Response.json(undefined)", "Response.json(()=>1)", "Response.json(1n)", "Response.json(1,{status:204})", "Response.json('\\ud800').text()",
  "new Response('{\"a\":1}').json()", "new Response('{').json()", "new Response('').json()", "new Response('\\ufeffx').text()", "new Response('\\ufeff1').json()", "(async r=>{await r.text();return r.text()})(new Response('x'))", "(async r=>{await r.text();return r.clone()})(new Response('x'))", "(async r=>{const c=r.clone();return [await r.text(),await c.text(),c.status]})(new Response('x',{status:201}))", "(async r=>{r.body.getReader();return r.text()})(new Response('x'))", "(async r=>{const rd=r.body.getReader();const x=await rd.read();return [x.done,x.value,r.bodyUsed,(await rd.read()).done]})(new Response('xy'))",
  "new Response(new ReadableStream({start(c){c.enqueue(new Uint8Array([104]));c.enqueue(new Uint8Array([105]));c.close()}})).text()", "new Response(new ReadableStream({start(c){c.enqueue('x');c.close()}})).text()", "new Response(new ReadableStream({start(c){c.error(new RangeError)}})).text()", "(s=>{s.getReader();return new Response(s)})(new ReadableStream())", "(async r=>{const c=r.clone();return [await c.text(),await r.text()]})(new Response(new ReadableStream({start(c){c.enqueue(new Uint8Array([104]));c.close()}})))", "new Response(null).text()", "new Response().body", "new Response('').body===null", "Response.prototype.text.call({})", "Response()", "Object.keys(Response.prototype).filter(k=>k!=='bytes').sort()", "Object.keys(Response).sort()", "new Response('x').headers===new Response('x').headers", "(r=>r.headers===r.headers)(new Response())", "(r=>r.body===r.body)(new Response('x'))", "[...await new Response('a=b&c=d+e',{headers:{'content-type':'application/x-www-form-urlencoded'}}).formData()]", "new Response('x').formData()", "new Response('x',{headers:{'content-type':'multipart/form-data; boundary=x'}}).formData()",
  "(async f=>{f.append('a','b\\r\\nc');f.append('é\"\\n','d');f.append('f',new Blob(['xyz'],{type:'t/p'}),'n\"ä.txt');const g=await new Response(f).formData();const e=[...g];return [e[0],e[1],e[2][0],e[2][1].name,e[2][1].type,await e[2][1].text()]})(new FormData())", "(r=>/^multipart\\/form-data; ?boundary=/.test(r.headers.get('content-type')))(new Response(new FormData()))", "[...await new Response('--x\\r\\nContent-Disposition: form-data; name=\"a\"\\r\\n\\r\\nv\\r\\n--x--\\r\\n',{headers:{'content-type':'multipart/form-data; boundary=x'}}).formData()]", "(async()=>{const e=[...await new Response('--x\\r\\ncontent-disposition: form-data; name=\"a\"; filename=\"f\"\\r\\nContent-Type: b/c\\r\\n\\r\\nv\\r\\n\\r\\n--x\\r\\nContent-Disposition: form-data; name=b\\r\\n\\r\\n\\r\\n--x--',{headers:{'content-type':'multipart/form-data; boundary=\"x\"'}}).formData()];return [e[0][1].name,e[0][1].type,await e[0][1].text()]})()");
for (const i of ["undefined", "{}", "{method:'post'}", "{method:'PATCH'}", "{method:'patch'}", "{method:'CONNECT'}", "{method:'a b'}", "{method:''}", "{body:'x'}", "{method:'POST',body:'x'}", "{method:'HEAD',body:''}", "{headers:{a:'b'}}", "{redirect:'manual'}", "{redirect:'x'}", "{credentials:'omit'}", "{mode:'no-cors'}", "{mode:'navigate'}", "{cache:'no-store'}", "{keepalive:true}", "{integrity:'x'}", "{signal:5}", "{signal:null}", "{referrerPolicy:'origin'}", "{method:'POST',body:new ReadableStream()}", "{method:'POST',body:new ReadableStream(),duplex:'half'}", "5"])
  add(`(r=>[r.method,r.url,[...r.headers],r.redirect,r.credentials,r.mode,r.cache,r.keepalive,r.integrity,r.destination,r.referrer,r.referrerPolicy,r.bodyUsed,r.signal.aborted])(new Request('http://a/b?c#d',${i}))`);
add("new Request()", "new Request('x')", "new Request('http://u:p@a')", "new Request('HTTP://A').url", "new Request(new URL('http://a')).url", "(async a=>{const b=new Request(a);return [b.method,await b.text(),a.bodyUsed]})(new Request('http://a',{method:'POST',body:'x'}))", "(async a=>{const b=new Request(a,{method:'PUT'});return [b.method,b.headers.get('content-type'),await b.text()]})(new Request('http://a',{method:'POST',body:'x'}))", "(async a=>{const b=a.clone();return [await a.text(),await b.text()]})(new Request('http://a',{method:'POST',body:'x'}))", "(c=>{const r=new Request('http://a',{signal:c.signal});c.abort(5);return [r.signal.aborted,r.signal.reason,r.signal===c.signal]})(new AbortController)", "(async a=>{await a.text();return new Request(a)})(new Request('http://a',{method:'POST',body:'x'}))", "new Request('http://a',{method:'POST',body:'{\"a\":1}'}).json()", "Request.prototype.url", "Object.keys(Request.prototype).filter(k=>k!=='bytes').sort()", "new Request('http://a',{method:'POST',body:'x',headers:{'content-type':'y'}}).headers.get('content-type')", "Request.length", "Response.length", "fetch.length", "fetch('nope')", "fetch()", "fetch('http://a',{signal:AbortSignal.abort(5)})", "fetch('http://a',{method:'GET',body:'x'})");

// ---- Blob, File, FormData
for (const a of ["", "[]", "['a','é']", "[new Uint8Array([1,2]),new ArrayBuffer(1),'x']", "[new Blob(['q']),'r']", "'abc'", "[5,null,{}]", "['a\\r\\nb\\nc'],{endings:'native'}", "['a'],{endings:'x'}", "['a'],{type:'A/B'}", "['a'],{type:'é'}", "['a'],5", "5", "{}", "new Set(['a','b'])", "[Symbol()]"])
  add(`(async b=>[b.size,b.type,await b.text(),new Uint8Array(await b.arrayBuffer())])(new Blob(${a}))`);
for (const s of ["", "1", "1,3", "-2", "-3,-1", "3,1", "0,99", "0,2,'T/Y'", "undefined,2"])
  add(`(async b=>[b.size,b.type,await b.text()])(new Blob(['abcd'],{type:'x/y'}).slice(${s}))`);
add("Blob()", "Blob.prototype.size", "Object.keys(Blob.prototype).filter(k=>k!=='bytes').sort()", "(async b=>{const r=[];for await(const c of b.stream())r.push(...c);return r})(new Blob(['abc']))", "(f=>[f.name,f.type,f.size,f.lastModified,f instanceof Blob,Object.prototype.toString.call(f)])(new File(['a'],'n',{type:'x/y',lastModified:5}))", "new File(['a'])", "new File(['a'],'a/b').name", "typeof new File([],'x').lastModified", "new Blob(['a']).slice(0,1) instanceof Blob");
for (const m of ["f.append('c','3')", "f.delete('a')", "f.get('a')", "f.get('x')", "f.getAll('a')", "f.has('a')", "f.set('a','z')", "f.set('n','z')", "f.forEach((v,k)=>r.push(k,v))", "[...f.keys()]", "[...f.values()]", "f.append('a')", "f.append('a','b','c')", "f.append('a',5)", "f.append('a',undefined)"])
  add(`(f=>{const r=[];const v=${m};return [v,r,[...f]]})((f=>{f.append('a','1');f.append('b','2');f.append('a','3');return f})(new FormData()))`);
add("(f=>{f.append('a',new Blob(['x']));return [f.get('a').name,f.get('a').type,f.get('a') instanceof File]})(new FormData)", "(f=>{f.append('a',new Blob(['x']),'n');return f.get('a').name})(new FormData)", "(f=>{f.append('a',new File(['x'],'q'));return f.get('a').name})(new FormData)", "(f=>{f.append('a',new File(['x'],'q'),'r');return f.get('a').name})(new FormData)", "(x=>{const f=new FormData;f.append('a',x);return f.get('a')===x})(new File(['x'],'q'))", "new FormData(5)", "Object.keys(FormData.prototype).sort()");

// ---- streams
const collect = "async s=>{const r=[];for await(const c of s)r.push(c);return r}";
add(`(${collect})(new ReadableStream({start(c){c.enqueue(1);c.enqueue(2);c.close()}}))`, `(${collect})(ReadableStream.from([1,2]))`, `(async s=>{const [a,b]=s.tee();return [await (${collect})(a),await (${collect})(b)]})(new ReadableStream({start(c){c.enqueue(1);c.close()}}))`, `(${collect})(new ReadableStream({start(c){c.enqueue('ab');c.close()}}).pipeThrough(new TransformStream({transform(c,k){k.enqueue(c.toUpperCase())},flush(k){k.enqueue('!')}})))`,
  "(async()=>{const r=[];await new ReadableStream({start(c){c.enqueue(1);c.close()}}).pipeTo(new WritableStream({write(c){r.push(c)},close(){r.push('c')}}));return r})()", "(async()=>{const w=new WritableStream({write(){throw new RangeError}}).getWriter();await w.write(1)})()", "(async()=>{const r=[];const s=new ReadableStream({pull(c){r.push(c.desiredSize);c.enqueue(1)}},{highWaterMark:3});await Promise.resolve();await Promise.resolve();await Promise.resolve();await Promise.resolve();return r.length})()", "(async()=>{const s=new ReadableStream({type:'bytes',start(c){c.enqueue(new Uint8Array([1,2,3]));}});const rd=s.getReader({mode:'byob'});const x=await rd.read(new Uint8Array(2));return [x.value,x.done]})()", "(async()=>{let why;const s=new ReadableStream({cancel(r){why=r}});await s.cancel(5);return why})()", "(s=>{s.getReader();s.getReader()})(new ReadableStream())", "new ReadableStream({type:'x'})", "new ByteLengthQueuingStrategy({highWaterMark:5}).size(new Uint8Array(3))", "new CountQueuingStrategy({highWaterMark:5}).size()", "new CountQueuingStrategy()", "(async()=>{const c=new AbortController;const p=new ReadableStream().pipeTo(new WritableStream(),{signal:c.signal});c.abort(7);return p})()", "(async()=>{const c=new AbortController;const p=new ReadableStream().pipeTo(new WritableStream(),{signal:c.signal});c.abort();return p})()", "(async()=>{const w=new WritableStream();const wr=w.getWriter();wr.abort(5);return wr.closed})()", "(async()=>{const t=new TransformStream();const w=t.writable.getWriter();w.write(1);w.close();return (await t.readable.getReader().read()).value})()", "(async()=>{const s=new ReadableStream({start(c){c.error(new TypeError)}});return s.getReader().read()})()", "(async()=>{const it=new ReadableStream({start(c){c.enqueue(1);c.enqueue(2)}})[Symbol.asyncIterator]();const a=await it.next();await it.return(9);return [a,await it.next()]})()", "Object.keys(ReadableStream.prototype).sort()", "Object.prototype.toString.call(new ReadableStream)", "new WritableStream().locked", "new TransformStream().readable.locked", "ReadableStream.name", "ReadableStreamDefaultReader.name", "new ReadableStreamDefaultReader(new ReadableStream()) instanceof ReadableStreamDefaultReader",
  `(${collect})(new ReadableStream({start(c){c.enqueue('h\\ud83d');c.enqueue('\\ude00');c.close()}}).pipeThrough(new TextEncoderStream()))`, `(${collect})(new ReadableStream({start(c){c.enqueue(new Uint8Array([0xe2,0x82]));c.enqueue(new Uint8Array([0xac,65]));c.close()}}).pipeThrough(new TextDecoderStream()))`, `(${collect})(new ReadableStream({start(c){c.enqueue(new Uint8Array([0xff]));c.close()}}).pipeThrough(new TextDecoderStream('utf-8',{fatal:true})))`, "new TextEncoderStream().encoding", "(d=>[d.encoding,d.fatal,d.ignoreBOM])(new TextDecoderStream('latin1'))");
// ---- compression
for (const f of ["gzip", "deflate", "deflate-raw"]) {
  const pipe = (src, cls) => `new Response(${src}.pipeThrough(new ${cls}(${q(f)})))`;
  for (const t of ["''", "'a'", "'hello '.repeat(5000)"]) {
    add(`(async()=>{const z=await ${pipe(`new Blob([${t}]).stream()`, "CompressionStream")}.arrayBuffer();return (await ${pipe("new Blob([z]).stream()", "DecompressionStream")}.text())===${t}})()`);
    if (f !== "gzip") add(`${pipe(`new Blob([${t}]).stream()`, "CompressionStream")}.arrayBuffer()`);
  }
  add(`${pipe("new Blob([new Uint8Array([1,2,3,4])]).stream()", "DecompressionStream")}.text()`);
}
add("new CompressionStream('x')", "new CompressionStream()", "Object.prototype.toString.call(new CompressionStream('gzip'))", "(c=>c.readable instanceof ReadableStream&&c.writable instanceof WritableStream)(new CompressionStream('gzip'))", "new Response(new Blob([Uint8Array.from(atob('H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA=='),c=>c.charCodeAt())]).stream().pipeThrough(new DecompressionStream('gzip'))).text()", "new Response(new Blob([Uint8Array.from(atob('H4sIAAAAAAAAA8tIzcnJBwCGphA='),c=>c.charCodeAt())]).stream().pipeThrough(new DecompressionStream('gzip'))).text()");

// ---- crypto
const utf = (t) => `new TextEncoder().encode(${q(t)})`;
for (const h of ["SHA-1", "SHA-256", "SHA-384", "SHA-512", "sha-256"]) add(`crypto.subtle.digest(${q(h)},${utf("abc")})`, `crypto.subtle.digest({name:${q(h)}},new Uint8Array(0))`);
add("crypto.subtle.digest('MD5',new Uint8Array(1))", "crypto.subtle.digest('SHA-256','x')", "crypto.subtle.digest('SHA-256')", "crypto.subtle.digest({},new Uint8Array(1))", "crypto.subtle.digest('SHA-256',new DataView(new ArrayBuffer(4),1))", "crypto.subtle.digest('SHA-256',new Uint16Array([1,2]).subarray(1))");
add("crypto.getRandomValues(new Uint8Array(0))", "crypto.getRandomValues(new Float32Array(1))", "crypto.getRandomValues(new Uint8Array(65537))", "crypto.getRandomValues(new Uint8Array(65536)).length", "crypto.getRandomValues([])", "crypto.getRandomValues(new DataView(new ArrayBuffer(1)))", "(u=>crypto.getRandomValues(u)===u&&u.some(x=>x))(new Uint32Array(32))", "/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())", "crypto.randomUUID()===crypto.randomUUID()", "Object.prototype.toString.call(crypto)", "Object.prototype.toString.call(crypto.subtle)", "crypto.subtle===crypto.subtle", "new Crypto()", "new CryptoKey()", "crypto.getRandomValues.call({},new Uint8Array(1))", "crypto.getRandomValues(new BigUint64Array(2)).length");
const hm = (h, k, use) => `crypto.subtle.importKey('raw',new Uint8Array(${k}),{name:'HMAC',hash:${q(h)}},true,${q(use)})`;
for (const h of ["SHA-1", "SHA-256", "SHA-384", "SHA-512"]) for (const k of ["[1]", "32", "200"]) add(`crypto.subtle.sign('HMAC',await ${hm(h, k, ["sign"])},${utf("msg")})`, `(k=>[k.type,k.extractable,k.algorithm,k.usages])(await ${hm(h, k, ["verify", "sign"])})`, `crypto.subtle.exportKey('jwk',await ${hm(h, k, ["sign"])})`, `crypto.subtle.exportKey('raw',await ${hm(h, k, ["sign"])})`, `(async k=>crypto.subtle.verify('HMAC',k,await crypto.subtle.sign('HMAC',k,${utf("m")}),${utf("m")}))(await ${hm(h, k, ["sign", "verify"])})`);
add(`crypto.subtle.verify('HMAC',await ${hm("SHA-256", "[1]", ["verify"])},new Uint8Array(32),new Uint8Array(1))`, `crypto.subtle.sign('HMAC',await ${hm("SHA-256", "[1]", ["verify"])},new Uint8Array(1))`, hm("SHA-256", "0", ["sign"]), hm("MD5", "1", ["sign"]), hm("SHA-256", "1", ["encrypt"]), hm("SHA-256", "1", []), hm("SHA-256", "1", ["x"]), "crypto.subtle.importKey('raw',new Uint8Array(1),'HMAC',true,['sign'])", "crypto.subtle.importKey('nope',new Uint8Array(1),{name:'HMAC',hash:'SHA-256'},true,['sign'])", "crypto.subtle.importKey('jwk',{kty:'oct',k:'AQID',alg:'HS256'},{name:'HMAC',hash:'SHA-256'},true,['sign']).then(k=>k.algorithm)", "crypto.subtle.importKey('jwk',{kty:'oct',k:'AQID',alg:'HS1'},{name:'HMAC',hash:'SHA-256'},true,['sign'])", "crypto.subtle.importKey('jwk',{kty:'oct',k:'AQID',ext:false},{name:'HMAC',hash:'SHA-256'},true,['sign'])", "crypto.subtle.importKey('jwk',{kty:'RSA',k:'AQID'},{name:'HMAC',hash:'SHA-256'},true,['sign'])", "crypto.subtle.exportKey('raw',await crypto.subtle.importKey('raw',new Uint8Array(1),{name:'HMAC',hash:'SHA-256'},false,['sign']))", "crypto.subtle.sign('HMAC',{},new Uint8Array(1))", "(await crypto.subtle.generateKey({name:'HMAC',hash:'SHA-512'},true,['sign'])).algorithm", "(await crypto.subtle.generateKey({name:'HMAC',hash:'SHA-512',length:8},true,['sign'])).algorithm", "crypto.subtle.generateKey({name:'HMAC',hash:'SHA-512',length:0},true,['sign'])", "crypto.subtle.generateKey({name:'NOPE'},true,['sign'])");
const aes = (n, bits, use) => `crypto.subtle.importKey('raw',new Uint8Array(${bits / 8}).fill(7),${q(n)},true,${q(use)})`;
for (const bits of [128, 192, 256]) {
  for (const [n, params] of [["AES-GCM", "iv:new Uint8Array(12)"], ["AES-GCM", "iv:new Uint8Array(12),additionalData:new Uint8Array([1,2]),tagLength:96"], ["AES-GCM", "iv:new Uint8Array(20)"], ["AES-CBC", "iv:new Uint8Array(16)"], ["AES-CTR", "counter:new Uint8Array(16).fill(255),length:64"], ["AES-CTR", "counter:new Uint8Array(16).fill(255),length:128"], ["AES-CTR", "counter:new Uint8Array([1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,254]),length:8"]])
    for (const d of ["new Uint8Array(0)", "new Uint8Array(16)", "new Uint8Array(100).fill(3)"]) add(`crypto.subtle.encrypt({name:${q(n)},${params}},await ${aes(n, bits, ["encrypt"])},${d})`, `(async k=>crypto.subtle.decrypt({name:${q(n)},${params}},k,await crypto.subtle.encrypt({name:${q(n)},${params}},k,${d})))(await ${aes(n, bits, ["encrypt", "decrypt"])})`);
  add(`(k=>[k.algorithm,k.usages])(await ${aes("AES-GCM", bits, ["decrypt", "encrypt"])})`, `crypto.subtle.exportKey('jwk',await ${aes("AES-CBC", bits, ["decrypt", "encrypt"])})`, `crypto.subtle.wrapKey('raw',await ${aes("AES-GCM", bits, ["encrypt"])},await ${aes("AES-KW", bits, ["wrapKey"])},'AES-KW')`);
}
add(`crypto.subtle.decrypt({name:'AES-GCM',iv:new Uint8Array(12)},await ${aes("AES-GCM", 128, ["decrypt"])},new Uint8Array(32))`, `crypto.subtle.decrypt({name:'AES-GCM',iv:new Uint8Array(12)},await ${aes("AES-GCM", 128, ["decrypt"])},new Uint8Array(3))`, `crypto.subtle.decrypt({name:'AES-CBC',iv:new Uint8Array(16)},await ${aes("AES-CBC", 128, ["decrypt"])},new Uint8Array(15))`, `crypto.subtle.encrypt({name:'AES-CBC',iv:new Uint8Array(15)},await ${aes("AES-CBC", 128, ["encrypt"])},new Uint8Array(15))`, `crypto.subtle.encrypt({name:'AES-GCM',iv:new Uint8Array(12),tagLength:5},await ${aes("AES-GCM", 128, ["encrypt"])},new Uint8Array(15))`, `crypto.subtle.encrypt({name:'AES-GCM'},await ${aes("AES-GCM", 128, ["encrypt"])},new Uint8Array(15))`, `crypto.subtle.encrypt({name:'AES-CTR',counter:new Uint8Array(16),length:0},await ${aes("AES-CTR", 128, ["encrypt"])},new Uint8Array(15))`, `crypto.subtle.encrypt({name:'AES-CTR',counter:new Uint8Array(16),length:1},await ${aes("AES-CTR", 128, ["encrypt"])},new Uint8Array(64))`, aes("AES-GCM", 136, ["encrypt"]), aes("AES-GCM", 128, ["sign"]), "(await crypto.subtle.generateKey({name:'AES-GCM',length:256},true,['encrypt'])).algorithm", "crypto.subtle.generateKey({name:'AES-GCM',length:100},true,['encrypt'])", "crypto.subtle.generateKey({name:'AES-GCM',length:256},true,[])", `(async w=>{const k=await ${aes("AES-GCM", 256, ["encrypt"])};const b=await crypto.subtle.wrapKey('jwk',k,w,{name:'AES-GCM',iv:new Uint8Array(12)});const u=await crypto.subtle.unwrapKey('jwk',b,w,{name:'AES-GCM',iv:new Uint8Array(12)},'AES-GCM',true,['encrypt']);return crypto.subtle.exportKey('raw',u)})(await ${aes("AES-GCM", 128, ["wrapKey", "unwrapKey"])})`, `crypto.subtle.unwrapKey('raw',new Uint8Array(24),await ${aes("AES-KW", 128, ["unwrapKey"])},'AES-KW','AES-GCM',true,['encrypt'])`);
for (const h of ["SHA-1", "SHA-256", "SHA-512"]) {
  add(`crypto.subtle.deriveBits({name:'PBKDF2',hash:${q(h)},salt:${utf("salt")},iterations:10},await crypto.subtle.importKey('raw',${utf("pw")},'PBKDF2',false,['deriveBits']),256)`, `crypto.subtle.deriveBits({name:'HKDF',hash:${q(h)},salt:${utf("salt")},info:${utf("info")}},await crypto.subtle.importKey('raw',${utf("ikm")},'HKDF',false,['deriveBits']),512)`, `(async()=>crypto.subtle.exportKey('raw',await crypto.subtle.deriveKey({name:'HKDF',hash:${q(h)},salt:new Uint8Array(0),info:new Uint8Array(0)},await crypto.subtle.importKey('raw',${utf("ikm")},'HKDF',false,['deriveKey']),{name:'AES-GCM',length:256},true,['encrypt'])))()`, `(async()=>(await crypto.subtle.deriveKey({name:'PBKDF2',hash:${q(h)},salt:new Uint8Array(0),iterations:1},await crypto.subtle.importKey('raw',${utf("ikm")},'PBKDF2',false,['deriveKey']),{name:'HMAC',hash:'SHA-384'},true,['sign'])).algorithm)()`);
}
add("crypto.subtle.deriveBits({name:'PBKDF2',hash:'SHA-256',salt:new Uint8Array(1),iterations:0},await crypto.subtle.importKey('raw',new Uint8Array(1),'PBKDF2',false,['deriveBits']),256)", "crypto.subtle.deriveBits({name:'PBKDF2',hash:'SHA-256',salt:new Uint8Array(1),iterations:1},await crypto.subtle.importKey('raw',new Uint8Array(1),'PBKDF2',false,['deriveBits']),7)", "crypto.subtle.importKey('raw',new Uint8Array(1),'PBKDF2',true,['deriveBits'])", "crypto.subtle.deriveBits({name:'HKDF',hash:'SHA-256',salt:new Uint8Array(1),info:new Uint8Array(1)},await crypto.subtle.importKey('raw',new Uint8Array(1),'HKDF',false,['deriveBits']),8*255*32+8)", "crypto.subtle.deriveBits({name:'PBKDF2',hash:'SHA-256',salt:new Uint8Array(1),iterations:1},await crypto.subtle.importKey('raw',new Uint8Array(0),'PBKDF2',false,['deriveBits']),64)");

// Keys and signatures made by node; both must read and verify them. RSA PKCS #1 and Ed25519 signatures
// are deterministic, so they must also be equal.
const { subtle } = globalThis.crypto;
const bin = (b) => `new Uint8Array([${new Uint8Array(b)}])`;
const exponent = new Uint8Array([1, 0, 1]);
const signers = [
  [{ name: "ECDSA", namedCurve: "P-256" }, "{name:'ECDSA',hash:'SHA-256'}", { name: "ECDSA", hash: "SHA-256" }],
  [{ name: "ECDSA", namedCurve: "P-384" }, "{name:'ECDSA',hash:'SHA-512'}", { name: "ECDSA", hash: "SHA-512" }],
  [{ name: "ECDSA", namedCurve: "P-521" }, "{name:'ECDSA',hash:'SHA-1'}", { name: "ECDSA", hash: "SHA-1" }],
  [{ name: "Ed25519" }, "'Ed25519'", "Ed25519"],
  [{ name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", modulusLength: 2048, publicExponent: exponent }, "'RSASSA-PKCS1-v1_5'", "RSASSA-PKCS1-v1_5"],
  [{ name: "RSA-PSS", hash: "SHA-384", modulusLength: 1024, publicExponent: exponent }, "{name:'RSA-PSS',saltLength:20}", { name: "RSA-PSS", saltLength: 20 }],
];
const message = new TextEncoder().encode("the message");
for (const [gen, how, howNode] of signers) {
  const k = await subtle.generateKey(gen, true, ["sign", "verify"]);
  const sig = await subtle.sign(howNode, k.privateKey, message);
  const alg = q({ name: gen.name, namedCurve: gen.namedCurve, hash: gen.hash });
  const spki = await subtle.exportKey("spki", k.publicKey), pkcs8 = await subtle.exportKey("pkcs8", k.privateKey);
  const jwkPublic = q(await subtle.exportKey("jwk", k.publicKey)), jwkPrivate = q(await subtle.exportKey("jwk", k.privateKey));
  const pub = [`'spki',${bin(spki)}`, `'jwk',${jwkPublic}`];
  if (gen.name !== "RSA-PSS" && gen.name !== "RSASSA-PKCS1-v1_5") pub.push(`'raw',${bin(await subtle.exportKey("raw", k.publicKey))}`);
  const priv = [`'pkcs8',${bin(pkcs8)}`, `'jwk',${jwkPrivate}`];
  for (const source of pub) {
    const key = `await crypto.subtle.importKey(${source},${alg},true,['verify'])`;
    add(`crypto.subtle.verify(${how},${key},${bin(sig)},${bin(message)})`, `crypto.subtle.verify(${how},${key},${bin(sig)},new Uint8Array(3))`,
      `crypto.subtle.verify(${how},${key},new Uint8Array(5),new Uint8Array(3))`, `(k=>[k.type,k.extractable,k.algorithm,k.usages])(${key})`,
      `crypto.subtle.exportKey('spki',${key})`, `crypto.subtle.exportKey('jwk',${key})`, `crypto.subtle.exportKey('pkcs8',${key})`,
      `crypto.subtle.sign(${how},${key},new Uint8Array(1))`, `crypto.subtle.importKey(${source},${alg},true,['sign'])`);
  }
  for (const source of priv) {
    const key = `await crypto.subtle.importKey(${source},${alg},true,['sign'])`;
    add(`(async k=>crypto.subtle.verify(${how},await crypto.subtle.importKey('spki',${bin(spki)},${alg},true,['verify']),await crypto.subtle.sign(${how},k,${bin(message)}),${bin(message)}))(${key})`,
      `(await crypto.subtle.sign(${how},${key},${bin(message)})).byteLength`, `(k=>[k.type,k.extractable,k.algorithm,k.usages])(${key})`,
      `crypto.subtle.exportKey('jwk',${key})`, `crypto.subtle.exportKey('pkcs8',${key})`, `crypto.subtle.exportKey('spki',${key})`, `crypto.subtle.importKey(${source},${alg},true,[])`);
    if (!how.includes("{")) add(`crypto.subtle.sign(${how},${key},${bin(message)})`);
  }
  add(`crypto.subtle.importKey('spki',${bin(spki.slice(0, -1))},${alg},true,['verify'])`, `crypto.subtle.importKey('pkcs8',${bin(spki)},${alg},true,['sign'])`, `crypto.subtle.importKey('spki',${bin(pkcs8)},${alg},true,['verify'])`, `crypto.subtle.importKey('pkcs8',new Uint8Array(0),${alg},true,['sign'])`);
  add(`(k=>[k.publicKey.type,k.publicKey.usages,k.publicKey.extractable,k.privateKey.type,k.privateKey.usages,k.privateKey.extractable,k.privateKey.algorithm])(await crypto.subtle.generateKey({name:${q(gen.name)},namedCurve:${q(gen.namedCurve)},hash:${q(gen.hash)},modulusLength:1024,publicExponent:new Uint8Array([1,0,1])},false,['verify','sign']))`);
}
for (const gen of [{ name: "ECDH", namedCurve: "P-256" }, { name: "ECDH", namedCurve: "P-521" }, { name: "X25519" }]) {
  const a = await subtle.generateKey(gen, true, ["deriveBits"]), b = await subtle.generateKey(gen, true, ["deriveBits"]);
  const alg = q(gen);
  const mine = `await crypto.subtle.importKey('pkcs8',${bin(await subtle.exportKey("pkcs8", a.privateKey))},${alg},true,['deriveKey','deriveBits'])`;
  const theirs = `await crypto.subtle.importKey('raw',${bin(await subtle.exportKey("raw", b.publicKey))},${alg},true,[])`;
  for (const bits of ["256", "128", "null", "8", "4096", "0"])
    add(`crypto.subtle.deriveBits({name:${q(gen.name)},public:${theirs}},${mine},${bits})`);
  add(`crypto.subtle.exportKey('raw',await crypto.subtle.deriveKey({name:${q(gen.name)},public:${theirs}},${mine},{name:'AES-GCM',length:256},true,['encrypt']))`, `crypto.subtle.exportKey('jwk',${mine})`, `crypto.subtle.exportKey('jwk',${theirs})`,
    `crypto.subtle.deriveBits({name:${q(gen.name)},public:${mine}},${mine},256)`, `crypto.subtle.importKey('raw',new Uint8Array(65).fill(4),${alg},true,[])`);
}
{
  const k = await subtle.generateKey({ name: "RSA-OAEP", hash: "SHA-256", modulusLength: 2048, publicExponent: exponent }, true, ["encrypt", "decrypt"]);
  const boxed = await subtle.encrypt({ name: "RSA-OAEP", label: message }, k.publicKey, message);
  const key = `await crypto.subtle.importKey('pkcs8',${bin(await subtle.exportKey("pkcs8", k.privateKey))},{name:'RSA-OAEP',hash:'SHA-256'},true,['decrypt'])`;
  const open = `await crypto.subtle.importKey('spki',${bin(await subtle.exportKey("spki", k.publicKey))},{name:'RSA-OAEP',hash:'SHA-256'},true,['encrypt'])`;
  add(`crypto.subtle.decrypt({name:'RSA-OAEP',label:${bin(message)}},${key},${bin(boxed)})`, `crypto.subtle.decrypt({name:'RSA-OAEP'},${key},${bin(boxed)})`, `crypto.subtle.decrypt('RSA-OAEP',${key},new Uint8Array(4))`,
    `crypto.subtle.decrypt('RSA-OAEP',${key},await crypto.subtle.encrypt('RSA-OAEP',${open},${bin(message)}))`, `crypto.subtle.encrypt('RSA-OAEP',${open},new Uint8Array(300))`, `crypto.subtle.encrypt('RSA-OAEP',${key},new Uint8Array(3))`);
}

// ---- performance, misc
add("typeof performance.now()", "performance.now()>=0", "Math.abs(performance.timeOrigin+performance.now()-Date.now())<2000", "(m=>[m.name,m.entryType,m.duration,m.detail,typeof m.startTime])(performance.mark('a',{detail:{x:1}}))", "(()=>{performance.mark('p',{startTime:1});performance.mark('q',{startTime:4});const m=performance.measure('m','p','q');return [m.name,m.entryType,m.startTime,m.duration,m.detail]})()", "performance.measure('m','nomark')", "performance.measure('m',{start:1,end:5}).duration", "performance.measure('m',{start:1,duration:5}).duration", "performance.measure('m',{start:1,end:2,duration:5})", "(()=>{performance.clearMarks();performance.clearMeasures();performance.mark('z');return performance.getEntriesByType('mark').map(e=>e.name)})()", "performance.getEntriesByName('z').length", "performance.mark()", "Object.prototype.toString.call(performance)", "performance instanceof EventTarget", "new Performance()",
  "(async()=>{const c=new MessageChannel;const p=new Promise(r=>{c.port2.onmessage=e=>r([e.data,e.type])});c.port1.postMessage({a:new Map([[1,2]])});const v=await p;c.port1.close();return v})()", "new MessagePort()", "(async()=>{const c=new MessageChannel;const b=new ArrayBuffer(3);const p=new Promise(r=>{c.port2.onmessage=e=>r(e.data.byteLength)});c.port1.postMessage(b,[b]);const v=[await p,b.byteLength];c.port1.close();return v})()", "(c=>{try{c.port1.postMessage(()=>1)}finally{c.port1.close()}})(new MessageChannel)");
