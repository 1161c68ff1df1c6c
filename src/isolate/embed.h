#pragma once
/* JavaScript that the build embeds (see meson.build): NUL-terminated source text. */

extern const char isolate_core_js[];    /* the prelude, one function of the native host object */
extern const char isolate_warm_js[];    /* the program that warms a zygote up */
