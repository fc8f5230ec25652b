import dayjs from "dayjs";
import "dayjs/locale/de";
import duration from "dayjs/plugin/duration";
import relativeTime from "dayjs/plugin/relativeTime";
import utc from "dayjs/plugin/utc";

dayjs.extend(utc);
dayjs.extend(duration);
dayjs.extend(relativeTime);

export default (task: { text(): string }) => {
  const day = dayjs.utc(task.text());
  return [
    day.add(1, "month").format("YYYY-MM-DDTHH:mm:ssZ"),
    day.locale("de").format("dddd, D. MMMM YYYY"),
    day.diff(dayjs.utc("2024-01-01"), "day"),
    day.from(day.add(3, "hour")),
    dayjs.duration(90, "minutes").toISOString(),
    Math.abs(dayjs().valueOf() - Date.now()) < 1000,
  ];
};
