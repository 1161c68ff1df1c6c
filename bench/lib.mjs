// What the benchmarks share.
import { execFileSync } from 'node:child_process';
import { connect } from 'node:net';
import { join } from 'node:path';
import { buildDir } from '../tests/lib/cay.mjs';

/** Builds a program that measures, which `make` leaves out, and says where it is. */
export function built(target) {
  execFileSync('ninja', ['-C', buildDir, target], { stdio: ['ignore', 'ignore', 'inherit'] });
  return join(buildDir, target);
}

/** Whether a benchmark is run, rather than imported for what it measures. */
export const isMain = (meta) => process.argv[1] === meta.filename;

/** Keep-alive connections with as little client as there can be: it shares the processors with what it measures. */
export class Client {
  idle = [];
  constructor(port) {
    this.port = port;
  }
  post(url, body) {
    return this.ask('POST', url, body);
  }
  async ask(method, url, body = '') {
    const head = `${method} ${url} HTTP/1.1\r\nHost: 127.0.0.1:${this.port}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n`;
    const socket = this.idle.pop() ?? connect({ port: this.port, host: '127.0.0.1', noDelay: true });
    const start = process.hrtime.bigint();
    const text = await new Promise((resolve, reject) => {
      let got = '';
      const done = (f, value) => {
        socket.removeAllListeners();
        f(value);
      };
      socket.setEncoding('latin1');
      socket.on('error', (e) => done(reject, e));
      socket.on('close', () => done(reject, new Error('the connection was closed')));
      socket.on('data', (d) => {
        got += d;
        const end = got.indexOf('\r\n\r\n');
        const length = end < 0 ? null : /\r\ncontent-length: (\d+)/i.exec(got.slice(0, end + 2));
        if (end > 0 && got.startsWith('HTTP/1.1 204')) done(resolve, 'null');
        else if (length && got.length >= end + 4 + Number(length[1])) done(resolve, got.slice(end + 4));
        else if (end > 0 && !length && got.endsWith('\r\n0\r\n\r\n')) done(resolve, unchunked(got.slice(end + 4)));
      });
      socket.write(head + body);
    });
    const ms = Number(process.hrtime.bigint() - start) / 1e6;
    this.idle.push(socket);
    try {
      return { ms, json: JSON.parse(text) };
    } catch {
      throw new Error(text.slice(0, 300));
    }
  }
  close() {
    for (const socket of this.idle) socket.destroy();
    this.idle = [];
  }
}

function unchunked(text) {
  let out = '';
  for (let at = 0; ; ) {
    const end = text.indexOf('\r\n', at);
    const n = parseInt(text.slice(at, end), 16);
    if (!(n > 0)) return out;
    out += text.slice(end + 2, end + 2 + n);
    at = end + 2 + n + 2;
  }
}
