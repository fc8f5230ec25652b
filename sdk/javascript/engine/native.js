// What the modules of ../lib import as "#native": the object of engine.c, which is a parameter of the bundle.
const host = native;
export { host as native };
