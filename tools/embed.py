#!/usr/bin/env python3
"""Turns a folder of files into an assembly file (.incbin) and a C table for src/front/http/asset.h.

usage: embed.py FOLDER OUT.S OUT.c WORK_FOLDER
"""
import gzip
import hashlib
import os
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
}


def main():
    folder, out_s, out_c, work = sys.argv[1:5]
    os.makedirs(work, exist_ok=True)
    files = []
    for base, dirs, names in os.walk(folder):
        dirs.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            files.append(("/" + os.path.relpath(path, folder), path))
    if not files:
        sys.exit(f"embed.py: {folder} is empty")
    asm, table = ['    .section .rodata'], []
    for i, (url, path) in enumerate(files):
        data = open(path, "rb").read()
        etag = hashlib.sha256(data).hexdigest()[:20]
        packed = gzip.compress(data, 9, mtime=0)
        use_gzip = len(packed) < len(data) * 0.9 and len(data) > 256
        gz_path = os.path.join(work, f"{i}.gz")
        if use_gzip:
            with open(gz_path, "wb") as f:
                f.write(packed)
        parts = [("data", os.path.abspath(path), True), ("gzip", os.path.abspath(gz_path), use_gzip)]
        for kind, file, used in parts:
            if used:
                asm += [f"    .global asset_{kind}_{i}", "    .balign 16", f"asset_{kind}_{i}:",
                        f'    .incbin "{file}"']
        kind = TYPES.get(os.path.splitext(url)[1], "application/octet-stream")
        hashed = "true" if url.startswith("/assets/") else "false"
        gz = (f"asset_gzip_{i}", len(packed)) if use_gzip else ("NULL", 0)
        table.append((i, f'    {{"{url}", "{kind}", "\\"{etag}\\"", asset_data_{i}, {len(data)}, '
                         f'{gz[0]}, {gz[1]}, {hashed}}},', use_gzip))
    asm.append('    .section .note.GNU-stack,"",%progbits')
    with open(out_s, "w") as f:
        f.write("\n".join(asm) + "\n")
    with open(out_c, "w") as f:
        f.write('#include "front/http/asset.h"\n\n#include <stdbool.h>\n#include <stddef.h>\n\n')
        for i, _, use_gzip in table:
            f.write(f"extern const unsigned char asset_data_{i}[];\n")
            if use_gzip:
                f.write(f"extern const unsigned char asset_gzip_{i}[];\n")
        f.write("\nconst struct asset assets[] = {\n")
        f.write("\n".join(row for _, row, _ in table))
        f.write("\n};\nconst size_t assets_count = sizeof(assets) / sizeof(assets[0]);\n")


main()
