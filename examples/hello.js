// A program is a module that exports a function. Its first argument is what it was handed (env), then its arguments.
export default function (env, name = 'world') {
  console.log(`Hello, ${name}.`);
  return { letters: name.length };
}
