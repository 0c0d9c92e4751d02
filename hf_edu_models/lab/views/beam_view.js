// The beam search as a tree: every sequence that was kept, from left to right.

import { announce, digits3, make } from "../../pages/assets/dom.js";
import { visible } from "./labels.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [64, 34];
const ROOT = -1; // before the first token

export class BeamView {
  static id = "beam";
  static title = "Beam";
  static absent = "no beam: it writes nothing, or by another search";
  static isNeeded = (analysis) => Boolean(analysis.generation?.tree?.length);

  constructor(session, app) {
    Object.assign(this, { session, app });
    this.element = make("div", "view");
    this.note = make("p", "quiet");
    this.box = make("div", "scroller tree");
    this.readout = make("p", "readout");
    this.element.append(this.note, this.box, this.readout);
    this.box.addEventListener("keydown", (event) => this.listen(event));
    this.box.addEventListener("focusin", (event) => this.show(event.target));
    this.box.addEventListener("click", (event) => event.target.closest("[role=treeitem]")?.focus());
  }

  update(analysis) {
    const { tree } = analysis.generation;
    const root = { id: ROOT, parent: null, step: -1, score: 0, isBest: true, children: [] };
    this.nodes = new Map([[ROOT, root], ...tree.map((node) => [node.id, { ...node, parent: node.parent ?? ROOT, children: [] }])]);
    for (const node of this.nodes.values()) this.nodes.get(node.parent)?.children.push(node);
    let leaves = 0;
    const place = (node) => {
      node.children.sort((one, other) => other.score - one.score).forEach(place);
      node.y = node.children.length ? node.children.reduce((sum, child) => sum + child.y, 0) / node.children.length : leaves++;
    };
    place(root);
    this.note.textContent = `${tree.length} tokens were kept; the line of the best sequence is thick. Each number is the log-probability of the sequence up to there.`;
    const svg = this.draw("svg", { width: 48 + WIDTH * (1 + Math.max(...tree.map(({ step }) => step))), height: HEIGHT * leaves + 12, role: "tree", "aria-label": "Beam search" });
    const x = ({ step }) => 22 + WIDTH * (step + 1);
    const y = (node) => 18 + HEIGHT * node.y;
    for (const node of this.nodes.values()) {
      const parent = this.nodes.get(node.parent);
      if (parent) svg.append(this.draw("path", { d: `M${x(parent) + 12},${y(parent)} C${x(parent) + 36},${y(parent)} ${x(node) - 40},${y(node)} ${x(node) - 14},${y(node)}`, class: node.isBest ? "best" : "" }));
    }
    for (const node of this.nodes.values()) svg.append(this.item(node, x(node), y(node)));
    const focused = this.box.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    this.box.replaceChildren(svg);
    if (focused !== null) this.box.querySelector(`[data-id="${focused}"]`)?.focus();
  }

  draw(tag, attributes) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  }

  textOf(node) {
    return node.parent === null ? "start" : visible(this.session.tokenizer.display(node.token));
  }

  item(node, x, y) {
    const group = this.draw("g", { role: "treeitem", tabindex: node.parent === null ? 0 : -1, transform: `translate(${x} ${y})`, class: `${node.isBest ? "best" : ""} ${node.isFinished ? "finished" : ""}` });
    group.dataset.id = node.id;
    group.dataset.score = node.score;
    const name = this.textOf(node);
    group.setAttribute("aria-label", node.parent === null ? "start" : `${name}, log-probability ${digits3(node.score)}${node.isBest ? ", best" : ""}${node.isFinished ? ", finished" : ""}`);
    group.append(this.draw("rect", { x: -15, y: -12, width: 30, height: 22, rx: 6 }));
    const text = this.draw("text", { "text-anchor": "middle", y: 3 });
    text.textContent = [...name].slice(0, 5).join("");
    const score = this.draw("text", { "text-anchor": "middle", y: 17, class: "small" });
    score.textContent = node.parent === null ? "" : node.score.toFixed(2);
    group.append(text, score);
    return group;
  }

  show(target) {
    const node = this.nodes.get(Number(target.dataset?.id));
    if (!node) return;
    const path = [];
    for (let each = node; each.parent !== null; each = this.nodes.get(each.parent)) path.unshift(each.token);
    this.readout.textContent = `${this.session.tokenizer.decode(path) || "start"} \u2002 log-probability ${digits3(node.score)}${node.isFinished ? ", finished" : ""}${node.isBest ? ", on the best path" : ""}`;
  }

  listen(event) {
    const node = this.nodes.get(Number(event.target.dataset?.id));
    if (!node) return;
    const siblings = this.nodes.get(node.parent)?.children ?? [node];
    const next = {
      ArrowRight: node.children[0], ArrowLeft: this.nodes.get(node.parent),
      ArrowUp: siblings[siblings.indexOf(node) - 1], ArrowDown: siblings[siblings.indexOf(node) + 1],
    }[event.key];
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    if (next) this.box.querySelector(`[data-id="${next.id}"]`).focus();
    else announce("no further token there");
  }
}
