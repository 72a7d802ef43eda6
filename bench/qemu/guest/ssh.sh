# SPDX-License-Identifier: Apache-2.0
# ssh.sh - ssh between the guests, for this run only: one key, made by node 1 and left in the shared folder.
keys=$HOME/.ssh
mkdir -p "$keys" /etc/dropbear
chmod 700 "$HOME" "$keys"
if [ "$NODE" = 1 ]; then
    dropbearkey -t ed25519 -f "$keys/key"
    dropbearkey -y -f "$keys/key" | grep '^ssh-' >"$keys/public"
    cp "$keys/key" "$keys/public" /job/
fi
rig-barrier ssh-key
cp /job/key "$keys/key"
cp /job/public "$keys/authorized_keys"
chmod 600 "$keys"/*
dropbearkey -t ed25519 -f /etc/dropbear/dropbear_ed25519_host_key
dropbear -r /etc/dropbear/dropbear_ed25519_host_key -p 22
cat >/usr/bin/ssh <<WRAPPER
#!/bin/bash
exec dbclient -T -y -y -i $keys/key root@"\${1#root@}" "\${@:2}"
WRAPPER
chmod 755 /usr/bin/ssh
rig-barrier ssh-ready
