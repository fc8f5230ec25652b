import { z } from "zod";

const Order = z.object({
  id: z.string().uuid(),
  email: z.string().email(),
  lines: z.array(z.object({ sku: z.string().min(1), quantity: z.number().int().positive() })).nonempty(),
  due: z.coerce.date().optional(),
});

export default function (task: { json(): unknown }) {
  const parsed = Order.safeParse(task.json());
  return parsed.success ? { due: parsed.data.due?.getTime(), lines: parsed.data.lines.length } : parsed.error.issues.map((i) => `${i.path.join(".")}: ${i.message}`);
}
