"use strict";
(() => {
  const tip = document.getElementById("tip");
  const hidden = new Set();  // numbers of runs

  for (const box of document.querySelectorAll("input[data-run]")) {
    box.addEventListener("change", () => {
      const run = Number(box.dataset.run);
      if (box.checked) hidden.delete(run); else hidden.add(run);
      for (const part of document.getElementsByClassName("r" + run)) part.classList.toggle("hidden", !box.checked);
    });
  }

  // Of points in order of their first number, the one that is nearest to `step`.
  function nearest(points, step) {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < step) low = middle + 1; else high = middle;
    }
    const before = points[low - 1];
    return before && step - before[0] < points[low][0] - step ? before : points[low];
  }

  function show(event, svg, pointer, data) {
    const box = svg.getBoundingClientRect();
    const width = svg.viewBox.baseVal.width;
    const at = (event.clientX - box.left) / box.width * width;
    const share = Math.min(1, Math.max(0, (at - data.left) / (data.right - data.left)));
    const step = data.first + share * (data.last - data.first);
    tip.replaceChildren();
    let shown = null;
    for (const line of data.lines) {
      if (hidden.has(line.run) || line.points.length === 0) continue;
      const point = nearest(line.points, step);
      shown = shown === null || Math.abs(point[0] - step) < Math.abs(shown - step) ? point[0] : shown;
      const row = document.createElement("div");
      row.className = "key c" + line.color;
      row.textContent = (line.label ? line.label + ": " : "") + point[1] + " (step " + point[0] + ")";
      tip.append(row);
    }
    if (shown === null) return hide(pointer);
    const x = data.left + (shown - data.first) / (data.last - data.first) * (data.right - data.left);
    pointer.setAttribute("x1", x);
    pointer.setAttribute("x2", x);
    pointer.setAttribute("y1", data.top);
    pointer.setAttribute("y2", data.bottom);
    pointer.style.visibility = "visible";
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 6);
    const top = event.clientY + 16 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  function hide(pointer) {
    pointer.style.visibility = "hidden";
    tip.hidden = true;
  }

  for (const figure of document.querySelectorAll("figure.chart")) {
    const source = figure.querySelector("script");
    const svg = figure.querySelector("svg");
    if (!source || !svg) continue;
    const data = JSON.parse(source.textContent);
    const pointer = svg.querySelector(".pointer");
    svg.addEventListener("pointermove", (event) => show(event, svg, pointer, data));
    svg.addEventListener("pointerleave", () => hide(pointer));
  }
})();
