"use strict";
document.getElementById("raw").textContent = document.getElementById("data").textContent;
