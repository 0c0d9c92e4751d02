// Small parts of a page. User text is only ever set as textContent, never as markup.

export const byId = (id) => document.getElementById(id);
export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
export const exact = (value) => value.toFixed(6);
export const digits3 = (value) => value.toFixed(3);
export const quoted = (text) => `“${text}”`;

export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// A token, isolated from the direction of what is around it.
export function token(text, className = "label") {
  const node = make("bdi", className, text);
  node.dir = "auto";
  return node;
}

// The bytes of a block of base64.
export function bytesOf(id) {
  const text = atob(byId(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// One of several: radio buttons that look like buttons, in a fieldset with a legend; hidden if there is no choice.
export function fillChoices(box, names, checked, select) {
  box.hidden = names.length < 2;
  box.querySelectorAll(".choice").forEach((node) => node.remove());
  for (const [value, text] of names) {
    const label = make("label", "choice");
    const input = make("input");
    input.type = "radio";
    input.name = box.id;
    input.value = value;
    input.checked = value === checked;
    input.addEventListener("change", () => select(value));
    label.append(input, make("span", "", text));
    box.append(label);
  }
}

// Arrow keys, Home and End move between tabs; `names` and `show` are functions, since tabs come and go.
export function listenToTabs(list, names, current, show) {
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) show(tab.id.slice(4));
  });
  list.addEventListener("keydown", (event) => {
    const all = names();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = step && (all.indexOf(current()) + step + all.length) % all.length;
    const position = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : next;
    if (position === undefined) return;
    event.preventDefault();
    show(all[position]);
    byId(`tab-${all[position]}`).focus();
  });
}

let announcing = 0;
// Tell screen readers, once per pause.
export function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => { byId("live").textContent = text; }, 120);
}

export const theme = () => document.documentElement.dataset.theme;

// The button `theme` switches; the page starts as the system is set.
export function listenToTheme(redraw) {
  const set = (name) => {
    document.documentElement.dataset.theme = name;
    const other = name === "dark" ? "light" : "dark";
    byId("theme").textContent = other === "dark" ? "Dark" : "Light";
    byId("theme").setAttribute("aria-label", `Switch to the ${other} theme`);
    redraw();
  };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => set(theme() === "dark" ? "light" : "dark"));
}
