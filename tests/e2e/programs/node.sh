#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# node: V8 reserves large ranges and commits parts of them, compiles while it runs, and collects from several threads.
source "$(dirname "$0")/common.sh"
lower=(--cxl 128M --nvme "4G:$scratch")
node=$(need node nodejs)

cat >script.js <<'JAVASCRIPT'
'use strict';
const { createHash } = require('crypto');
const hash = createHash('sha256');
let x = 99;
const next = () => (x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff);

const typed = new Float64Array(6e6);
for (let i = 0; i < typed.length; i++) typed[i] = next() / 3;
const map = new Map();
for (let i = 0; i < 200000; i++)
    map.set('k' + (next() % 1000003), { i, text: 'v'.repeat(next() % 200) + i, list: [i, x] });
const arrays = [];
for (let i = 0; i < 300; i++) arrays.push(Array.from({ length: 10000 }, (_, j) => i * j % 97));
typed.sort();
for (const [key, value] of map) if (value.i % 3 === 0) map.delete(key);
for (let i = 0; i < typed.length; i += 4096) hash.update(String(typed[i]));
for (const [key, value] of map) hash.update(key + value.text + value.list[1]);
for (const array of arrays) hash.update(array.join());
console.log(map.size, arrays.length, hash.digest('hex'));
JAVASCRIPT
natively "$node" ../script.js
managed "$node" ../script.js
same out
verdict
