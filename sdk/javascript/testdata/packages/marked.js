import { marked } from "marked";

export default (task) => marked.parse(task.text());
