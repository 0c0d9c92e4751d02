// A heat map with a cursor: the mouse, touch and arrow keys choose a cell.

import { largest, paint } from "../../pages/assets/colours.js";
import { clamp, make, token } from "../../pages/assets/dom.js";

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Heat {
  // choose(row, column, isByKey): the cell that was chosen.
  constructor(label, choose) {
    Object.assign(this, { label, choose, row: 0, column: 0 });
    this.element = make("div", "lab-heat");
    this.names = make("div", "lab-heat-names");
    this.names.setAttribute("aria-hidden", "true");
    this.heads = make("div", "lab-heat-heads");
    this.heads.setAttribute("aria-hidden", "true");
    this.field = make("div", "lab-heat-field");
    this.field.tabIndex = 0;
    this.field.setAttribute("role", "application");
    this.field.setAttribute("aria-roledescription", "heat map");
    this.canvas = make("canvas");
    this.cursor = make("span", "cursor");
    this.field.append(this.canvas, this.cursor);
    this.element.append(this.heads, this.names, this.field);
    this.field.addEventListener("pointerdown", (event) => { this.point(event); this.field.setPointerCapture?.(event.pointerId); });
    this.field.addEventListener("pointermove", (event) => { if (event.buttons || event.pointerType === "mouse") this.point(event); });
    this.field.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      this.move(this.row + step[0], this.column + step[1], true);
    });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.rows);
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columns);
    if (row !== this.row || column !== this.column) this.move(row, column, false);
  }

  move(row, column, isByKey) {
    this.place(row, column);
    this.choose(this.row, this.column, isByKey);
  }

  place(row, column) {
    this.row = clamp(row, 0, this.rows - 1);
    this.column = clamp(column, 0, this.columns - 1);
    Object.assign(this.cursor.style, { left: `${this.column * this.width}px`, top: `${this.row * this.height}px`, width: `${this.width}px`, height: `${this.height}px` });
    [...this.names.children].forEach((name, i) => name.classList.toggle("on", i === this.row));
    [...this.heads.children].forEach((name, i) => name.classList.toggle("on", i === this.column));
  }

  // kind: "weight" from 0 to the largest value, or "sign" around 0. columnLabels may be null: units have no names.
  show({ values, rows, columns, rowLabels, columnLabels, kind, row, column }) {
    Object.assign(this, { rows, columns });
    this.fill(this.names, rowLabels);
    const space = Math.max((this.element.parentElement?.clientWidth || 600) - this.names.offsetWidth - 14, 100);
    this.width = clamp(space / columns, columnLabels ? 7 : 1.5, columnLabels ? 30 : 14);
    this.height = columnLabels ? Math.max(this.width, 14) : rows > 40 ? 12 : 19;
    const top = largest(values);
    paint(this.canvas, values, rows, columns, kind === "sign" ? -top : 0, top, kind);
    Object.assign(this.canvas.style, { width: `${this.width * columns}px`, height: `${this.height * rows}px` });
    this.element.style.setProperty("--row", `${this.height}px`);
    this.element.style.setProperty("--column", `${this.width}px`);
    this.fill(this.heads, columnLabels ?? []);
    this.heads.hidden = !columnLabels || this.width < 9; // no room for letters
    this.field.setAttribute("aria-label", `${this.label}: ${rows} rows and ${columns} columns; arrow keys move from cell to cell`);
    this.place(row ?? this.row, column ?? this.column);
  }

  fill(box, labels) {
    box.replaceChildren(...labels.map((label) => { const name = make("span", [...label].length > 2 ? "long" : ""); name.append(token(label)); return name; }));
  }
}
