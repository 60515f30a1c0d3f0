//! Points in time as datasets spell them, brought to the pyramid's minutes.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde_json::Value;

/// Numbers from here on count milliseconds since 1970; as seconds they would lie after the year 5100.
const FIRST_MILLISECONDS: i64 = 100_000_000_000;

/// As pyramids spell it: `YYYY-MM-DDTHH:MM`.
pub(super) fn iso_minute(time: NaiveDateTime) -> String {
    time.format("%Y-%m-%dT%H:%M").to_string()
}

/// As questions spell it: `YYYY-MM-DD`.
pub(super) fn iso_day(time: NaiveDateTime) -> String {
    time.format("%Y-%m-%d").to_string()
}

/// `2023/05/23 (Tue) 19:11`. The name of the day is not looked at: it adds nothing to the date.
pub(super) fn slashed(text: &str) -> Result<NaiveDateTime, String> {
    let mut parts: Vec<&str> = text.split_whitespace().collect();
    parts.retain(|part| !(part.starts_with('(') && part.ends_with(')')));
    NaiveDateTime::parse_from_str(&parts.join(" "), "%Y/%m/%d %H:%M")
        .map_err(|_| format!("must be like `2023/05/23 (Tue) 19:11`, got `{text}`"))
}

/// ISO 8601 with or without time, seconds and offset, LongMemEval's form, or seconds or milliseconds since 1970.
///
/// An offset is dropped and the local time kept: what a person calls Tuesday evening stays Tuesday evening.
pub(super) fn any_time(value: &Value) -> Result<NaiveDateTime, String> {
    let wrong = || format!("must be an ISO 8601 time or seconds since 1970, got {value}");
    match value {
        Value::Number(number) => {
            let whole = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds.floor() as i64));
            let seconds = whole.map(|n| if n.abs() >= FIRST_MILLISECONDS { n.div_euclid(1000) } else { n });
            let time = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0)).map(|time| time.naive_utc());
            time.ok_or_else(wrong)
        }
        Value::String(text) => from_text(text.trim()).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

fn from_text(text: &str) -> Option<NaiveDateTime> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.naive_local());
    }
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return day.and_hms_opt(0, 0, 0);
    }
    let plain = text.strip_suffix('Z').unwrap_or(text).replacen(' ', "T", 1);
    let iso = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S%.f"];
    let iso = iso.iter().find_map(|form| NaiveDateTime::parse_from_str(&plain, form).ok());
    iso.or_else(|| slashed(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spellings() {
        let cases = [
            (json!("2023-05-23"), "2023-05-23T00:00"),
            (json!("2023-05-23T19:11"), "2023-05-23T19:11"),
            (json!("2023-05-23 19:11:59"), "2023-05-23T19:11"),
            (json!("2023-05-23T19:11:59.125Z"), "2023-05-23T19:11"),
            (json!("2023-05-23T19:11Z"), "2023-05-23T19:11"),
            (json!("2023-05-23T19:11:00+09:00"), "2023-05-23T19:11"),
            (json!("2023/05/23 (Tue) 19:11"), "2023-05-23T19:11"),
            (json!(1_684_869_060), "2023-05-23T19:11"),
            (json!(1_684_869_060.5), "2023-05-23T19:11"),
            (json!(1_684_869_060_000_i64), "2023-05-23T19:11"),
        ];
        for (value, expected) in cases {
            assert_eq!(any_time(&value).map(iso_minute).as_deref(), Ok(expected), "{value}");
        }
        for bad in [json!("yesterday"), json!("2023-13-01"), json!(""), json!(true), json!(null), json!("19:11")] {
            assert!(any_time(&bad).unwrap_err().contains("must be an ISO 8601 time"), "{bad}");
        }
    }

    #[test]
    fn slashed_dates() {
        assert_eq!(slashed("2023/05/23 (Tue) 19:11").map(iso_day).as_deref(), Ok("2023-05-23"));
        assert_eq!(slashed("2023/05/23 19:11").map(iso_minute).as_deref(), Ok("2023-05-23T19:11"));
        for bad in ["", "2023/02/30 (Thu) 10:00", "2023-05-23", "2023/05/23 (Tue)", "(Tue) 19:11"] {
            assert!(slashed(bad).unwrap_err().contains("must be like"), "{bad}");
        }
    }
}
