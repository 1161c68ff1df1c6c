/**
 * Zod, which the chat's hooks bring along, asks with `new Function` whether it may compile code. The
 * page's policy says no, and a browser reports even the question. Imported before anything that
 * builds a schema.
 */
import { config } from 'zod/v4/core';

config({ jitless: true });
