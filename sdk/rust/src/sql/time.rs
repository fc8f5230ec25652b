//! Times in PostgreSQL's text format.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: i64 = 24 * 60 * 60;

/// A timestamptz in UTC, in microseconds.
pub(super) fn format(time: SystemTime) -> String {
    let micros = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_micros() as i64,
        Err(before) => -(((before.duration().as_nanos() + 999) / 1000) as i64), // rounded down, as after 1970
    };
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}+00{era}")
}

/// Reads a date, a timestamp, or a timestamptz. `None` for infinity, and for times that a SystemTime cannot be: on
/// wasm32-unknown-unknown those before 1970.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (text, before_christ) = text.strip_suffix(" BC").map_or((text, false), |text| (text, true));
    let (day, time) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let mut parts = day.splitn(3, '-');
    let mut next = || parts.next()?.parse::<u32>().ok().map(i64::from);
    let (year, month, day) = (next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if before_christ { 1 - year } else { year };
    let (time, offset) = match time.find(['+', '-']) {
        Some(sign) => (&time[..sign], clock(&time[sign + 1..])? * if time[sign..].starts_with('-') { -1 } else { 1 }),
        None => (time, 0),
    };
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    let seconds = days(year, month, day) * DAY + clock(whole)? - offset;
    let size = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH.checked_sub(size) } else { UNIX_EPOCH.checked_add(size) };
    time?.checked_add(Duration::new(0, nanos))
}

/// The seconds of hours, minutes and seconds. Only the hours must be there.
fn clock(text: &str) -> Option<i64> {
    let mut seconds = 0;
    let mut unit = 3600;
    for part in text.splitn(3, ':') {
        seconds += i64::from(part.parse::<u32>().ok()?) * unit;
        unit /= 60;
    }
    Some(seconds)
}

/// The days from 1970-01-01 to a date. Years are counted from March, so that the leap day is the last of a year. From March, five months
/// have 153 days.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let from_march = (month + 9) % 12;
    let year = year - from_march / 10;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * from_march + 2) / 5 + day - 1 - 719_468
}

/// The year, month and day of a day from 1970-01-01.
fn date(day: i64) -> (i64, i64, i64) {
    let mut year = (day + 719_468) * 400 / 146_097; // or the next one
    while days(year, 3, 1) > day {
        year -= 1;
    }
    while days(year + 1, 3, 1) <= day {
        year += 1;
    }
    let of_year = day - days(year, 3, 1);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    (year + i64::from(month < 3), month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds, micros, written) in [
            ("1970-01-01", 0i64, 0, "1970-01-01 00:00:00.000000+00"),
            ("2026-11-28 13:05:59.25", 1_795_871_159, 250_000, "2026-11-28 13:05:59.250000+00"),
            ("2026-11-28 13:05:59.25+01", 1_795_867_559, 250_000, "2026-11-28 12:05:59.250000+00"),
            ("2026-11-28 13:05:59-09:30", 1_795_905_359, 0, "2026-11-28 22:35:59.000000+00"),
            ("2024-02-29 23:59:59.999999+00", 1_709_251_199, 999_999, "2024-02-29 23:59:59.999999+00"),
            ("2000-03-01 00:00:00+00", 951_868_800, 0, "2000-03-01 00:00:00.000000+00"),
            ("12026-01-01 00:00:00+00", 317_336_745_600, 0, "12026-01-01 00:00:00.000000+00"),
            ("1969-12-31 23:59:59.5+00", -1, 500_000, "1969-12-31 23:59:59.500000+00"),
            ("0044-03-15 12:00:00+00 BC", -63_517_780_800, 0, "0044-03-15 12:00:00.000000+00 BC"),
        ] {
            let time = parse(text).unwrap();
            let base = if seconds < 0 { UNIX_EPOCH - Duration::from_secs(-seconds as u64) } else { UNIX_EPOCH + Duration::from_secs(seconds as u64) };
            assert_eq!(time, base + Duration::from_micros(micros), "{text}");
            assert_eq!(format(time), written);
        }
        for bad in ["", "infinity", "-infinity", "2026-13-01", "2026-1", "2026-11-28 a", "2026-11-28 13:05:59.x", "a-b-c"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    // Every day of 800 years is the one after the day before it.
    #[test]
    fn dates() {
        let first = days(1600, 1, 1);
        let mut before = date(first - 1);
        for day in first..days(2400, 1, 1) {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), day);
            assert!((year, month, of_month) > before, "{day}");
            before = (year, month, of_month);
        }
    }
}
