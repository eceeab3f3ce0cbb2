#!/bin/bash
# tar, git and cp -r with @[ and [: in names, as in web projects (sveltejs/kit#2451, vmware/open-vm-tools#487)
. "${0%/*}/common.sh"
mkdir -p "$T/src/routes/@[username]" "$T/src/dot[integer:integer]" "$T/src/[:space:]"
for n in 'routes/[id].svelte' 'routes/@[id].svelte' 'routes/@[username]/+page.svelte' 'routes/+page@[id].svelte' \
         'dot[integer:integer]/f' '[:space:]/f' 'a@[1].txt' 'a'; do echo "$n" > "$T/src/$n"; done
tar -C "$T" -cf "$T/t.tar" src && tar -C "$B" -xf "$T/t.tar" || fail "tar cannot unpack names with @["
diff -r "$T/src" "$B2/src" || fail "the unpacked tree differs"
cd "$B/src" && git init -q . && git add -A && git commit -qm 1 && git rm -rq . && git checkout -q HEAD -- . || fail "git cannot add, commit, remove and check out the tree"
diff -r --exclude=.git "$T/src" "$B2/src" || fail "the tree that git checked out differs"
cp -r "$T/src" "$B/copy" && diff -r "$T/src" "$B2/copy" || fail "the tree copied by cp -r differs"
pass
