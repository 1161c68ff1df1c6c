#pragma once
/* JavaScript that the build embeds (see meson.build): NUL-terminated source text. */

extern const char isolate_core_js[];   /* the prelude: a function of what the others give */
extern const char isolate_loader_js[]; /* the module loader: an object */
extern const char isolate_web_js[];    /* the web globals: a function */
extern const char isolate_warm_js[];   /* the program that warms a zygote up: linked, JSON */
extern const char isolate_short_js[];  /* what a run of little needs: linked, JSON */
extern const char isolate_other_js[];  /* what it never ran, to learn from: linked, JSON */
extern const char isolate_plain_js[];  /* the same, of what a run of little needs: linked, JSON */
