#!/usr/bin/env node
// npm links commands when it installs, and in a checkout nothing is built yet then; this file is there already.
import '../dist/main.js';
