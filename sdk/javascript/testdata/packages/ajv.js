import Ajv from "ajv";

// Compiled before the snapshot.
const validate = new Ajv({ allErrors: true }).compile({
  type: "object",
  properties: { name: { type: "string", minLength: 2 }, age: { type: "integer", minimum: 0 }, tags: { type: "array", uniqueItems: true, items: { type: "string" } } },
  required: ["name"],
  additionalProperties: false,
});

export default (task) => (validate(task.json()) ? "valid" : validate.errors.map((e) => `${e.instancePath} ${e.message}`));
