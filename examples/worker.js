// A worker stays loaded and answers requests to its host name.
let calls = 0;

export default {
  fetch(request) {
    const name = new URL(request.url).pathname.slice(1) || 'world';
    return new Response(`Hello, ${name}: call ${++calls}\n`);
  },
};
