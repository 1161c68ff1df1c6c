# Everything goes through a few scripts in tools/; `make help` lists the targets.
PREFIX = /usr/local
DESTDIR =
ARGS =
PHASES =
MESON_ARGS =
export PREFIX MESON_ARGS

.NOTPARALLEL:
.PHONY: all run test test-long bench soak lint format clean install uninstall deb help

all: ## install what is missing and build everything into build/
	@tools/setup build
	@tools/build

run: all ## build, then start the server: make run ARGS="--listen 127.0.0.1:8080"
	@exec build/cay serve $(ARGS)

test: ## run the tests, about ten minutes, or some phases: make test PHASES="unit e2e"
	@tools/setup build lint test
	@exec tests/run $(or $(PHASES),quick)

test-long: ## run the tests that take longer: browser, sanitizers, fuzzing, clang-tidy
	@tools/setup build lint test
	@exec tests/run long

bench: all ## run the side-by-side benchmarks, or two builds in turns: make bench ARGS="--against DIR"
	@tools/setup bench
	@exec bench/run $(ARGS)

soak: all ## run the long tests of tests/soak/, or one: make soak ARGS=fresh-debian
	@tools/setup soak
	@exec tests/soak/run $(ARGS)

lint: ## check style, banned calls, clang-tidy, cppcheck and eslint
	@tools/setup build lint
	@exec tests/run lint-text lint-c

format: ## format the C sources in place
	@tools/setup lint
	@exec tools/lint-format --fix

install: all ## install: make install PREFIX=/usr DESTDIR=/tmp/root
	@meson install -C build --no-rebuild $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@tools/install-settings "$(DESTDIR)" "$(PREFIX)"

uninstall: ## remove what `make install` installed; settings and data stay
	@tools/uninstall "$(DESTDIR)"

deb: ## build the Debian package into build/deb/
	@tools/setup build deb
	@exec tools/deb

clean: ## remove what was built
	rm -rf build build-*

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16
