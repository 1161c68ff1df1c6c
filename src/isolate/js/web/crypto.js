"use strict";
module.exports = { };
