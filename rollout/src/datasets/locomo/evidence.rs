//! Evidence entries brought to message ids.

use std::collections::BTreeSet;

/// What an evidence entry comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Distinct ids in order: those that name a message, and the others as they were.
    pub(super) ids: Vec<String>,
    /// Those that name no message.
    pub(super) unresolved: Vec<String>,
    /// Entries that were split or respelled.
    pub(super) num_normalized: usize,
}

impl Resolved {
    /// The ids that name a message.
    pub(super) fn known(self) -> Vec<String> {
        let unresolved = self.unresolved;
        self.ids.into_iter().filter(|id| !unresolved.contains(id)).collect()
    }
}

/// Splits entries at `;`, `,` and white space and respells each id: `D8:6; D9:17` → `D8:6`, `D9:17`; `D:11:26` →
/// `D11:26`; `D30:05` → `D30:5`.
pub(super) fn resolve(entries: &[String], message_ids: &BTreeSet<&str>) -> Resolved {
    let mut resolved = Resolved::default();
    for entry in entries {
        let parts: Vec<&str> = entry.split([';', ',', ' ', '\t', '\n']).filter(|part| !part.is_empty()).collect();
        let ids: Vec<String> = parts.iter().map(|part| respell(part, message_ids)).collect();
        resolved.num_normalized += usize::from(ids != [entry.as_str()]);
        for id in ids {
            if resolved.ids.contains(&id) {
                continue;
            }
            if !message_ids.contains(id.as_str()) {
                resolved.unresolved.push(id.clone());
            }
            resolved.ids.push(id);
        }
    }
    resolved
}

/// The message id that a spelling means, or the spelling itself when it means none.
fn respell(part: &str, message_ids: &BTreeSet<&str>) -> String {
    if message_ids.contains(part) {
        return part.to_owned();
    }
    let numbers: Vec<u32> =
        part.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect();
    match numbers.as_slice() {
        [session, turn] if part.starts_with(['D', 'd']) => {
            let id = format!("D{session}:{turn}");
            if message_ids.contains(id.as_str()) { id } else { part.to_owned() }
        }
        _ => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let ids = BTreeSet::from(["D8:6", "D9:17", "D11:26", "D30:5"]);
        type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], usize);
        let cases: [Case; 7] = [
            (&["D8:6"], &["D8:6"], &[], 0),
            (&["D8:6; D9:17"], &["D8:6", "D9:17"], &[], 1),
            (&["D:11:26", "D8:6"], &["D11:26", "D8:6"], &[], 1),
            (&["D30:05"], &["D30:5"], &[], 1),
            (&["D8:6 D8:6 D4:4"], &["D8:6", "D4:4"], &["D4:4"], 1),
            (&["D10:19", "D"], &["D10:19", "D"], &["D10:19", "D"], 0),
            (&[], &[], &[], 0),
        ];
        for (entries, expected, unresolved, num_normalized) in cases {
            let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
            let resolved = resolve(&entries, &ids);
            assert_eq!(resolved.ids, expected, "{entries:?}");
            assert_eq!(resolved.unresolved, unresolved, "{entries:?}");
            assert_eq!(resolved.num_normalized, num_normalized, "{entries:?}");
        }
    }
}
