# debian.sh: Debian systems in folders, for the tests that need more than this machine. To be sourced, at the top of the
# tree. How packages are reached (mirror, proxy, certificates) is asked of this machine, when it runs.

need_root() {
    [ "$(id -u)" -eq 0 ] || {
        echo "$1: needs root, to make and enter Debian systems" >&2
        exit 1
    }
}

# The name of a release: 12, 13.
codename() {
    case $1 in
    12) echo bookworm ;;
    13) echo trixie ;;
    *)
        echo "no such release of Debian: \"$1\"; known are 12 and 13" >&2
        return 1
        ;;
    esac
}

# "deb URI suite component" of Debian's own archives for a release, from the mirror that this machine uses for its own.
archives() {
    here=$(. /etc/os-release && echo "$VERSION_CODENAME")
    there=$(codename "$1") || return 1
    found=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        awk -v here="$here" -v there="$there" '
            $4 == "Debian" && index($2, here) == 1 && $3 == "main" { sub(here, there, $2); print "deb", $1, $2, $3 }' |
        sort -u)
    [ -n "$found" ] || {
        echo "no archive of Debian in this machine's apt sources" >&2
        return 1
    }
    echo "$found"
}

# debian_tar RELEASE NAME PACKAGES: build/cache/NAME-RELEASE.tar, a minimal system with these packages (separated by
# commas). Made once for each list of packages.
debian_tar() {
    base=$PWD/build/cache/$2-$1.tar
    [ -s "$base" ] && [ "$(cat "$base.packages" 2>/dev/null)" = "$3" ] && return
    mkdir -p build/cache build/logs
    archives "$1" >"$base.sources.list"
    apt-config dump | grep -E '^Acquire::(http|https)::(Proxy|CaInfo)' >"$base.conf" || true
    echo 'Acquire::Languages "none";' >>"$base.conf"
    tools/quietly "making a Debian $1 ($2)" "build/logs/$2-$1.log" \
        mmdebstrap --variant=minbase --format=tar --aptopt="$base.conf" --include="$3" --dpkgopt=path-exclude='/usr/share/doc/*' \
        --dpkgopt=path-exclude='/usr/share/man/*' --dpkgopt=path-exclude='/usr/share/locale/*' \
        "$(codename "$1")" "$base.new" "$base.sources.list"
    mv "$base.new" "$base"
    echo "$3" >"$base.packages"
    rm "$base.sources.list" "$base.conf"
}

# debian_join ROOT RELEASE: the way to the registries, as this machine has it.
debian_join() {
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    rm -f "$1"/etc/apt/sources.list.d/*
    archives "$2" >"$1/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(http|https)::(Proxy|CaInfo)' >"$1/etc/apt/apt.conf.d/90host" || true
    mkdir -p "$1/usr/local/share/ca-certificates"
    cp -rL /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"
    npm=
    for key in registry proxy https-proxy; do
        value=$(cd / && npm config get $key 2>/dev/null || true)
        case $value in '' | null | undefined) ;; *) npm="$npm npm_config_$(echo $key | tr - _)=$value" ;; esac
    done
    # Node and npm carry their own list of authorities; Debian's, with the host's own, is made when apt sets it up.
    bundle=/etc/ssl/certs/ca-certificates.crt
    npm="$npm NODE_EXTRA_CA_CERTS=$bundle npm_config_cafile=$bundle"
}

# debian_enter ROOT COMMAND...: run it inside, with the variables of debian_join. Mounts live in a namespace of their own and go with it. The root is
# pivoted, not chrooted into: a chrooted process may not make user namespaces, which `cay doctor` rightly misses.
debian_enter() {
    root_at=$1
    shift
    unshare --mount --pid --fork --kill-child sh -eu -c '
        root=$1
        shift
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount -t sysfs -o ro sysfs "$root/sys"
        mount --rbind /dev "$root/dev"
        cd "$root"
        mkdir -p old
        pivot_root . old
        cd /
        umount -l /old
        exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
    ' sh "$root_at" ${npm:-} "$@"
}
