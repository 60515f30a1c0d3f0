//! What every call to a language model took: one line each, and sums that are exact.
//!
//! The ledger is appended to at once and not rolled back: a call that a crash made useless was paid for all the same.

use super::disk::Disk;
use super::error::BuildError;
use super::folder::{LEDGER_FILE, read_lines};
use super::language::{LanguageError, LanguageReply, LanguageRole};
use super::settings::Prices;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// One line of `.build/ledger.jsonl`. Integers throughout, so that sums do not depend on their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerLine {
    /// Whose pyramid it was for.
    pub user: String,
    /// What was asked for.
    pub role: LanguageRole,
    /// Tokens of the prompt.
    pub num_input_tokens: u64,
    /// Tokens of the reply.
    pub num_output_tokens: u64,
    /// From the request to the reply, in microseconds.
    pub latency_us: u64,
    /// Attempts after the first.
    pub num_retries: u64,
    /// False when there was no reply or it was refused.
    pub ok: bool,
    /// Cost in billionths of the currency of the prices.
    pub cost_nano: u64,
}

/// Sums over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LedgerTotals {
    /// Calls.
    pub num_calls: u64,
    /// Calls without a reply that could be used.
    pub num_failed: u64,
    /// Tokens of prompts.
    pub num_input_tokens: u64,
    /// Tokens of replies.
    pub num_output_tokens: u64,
    /// Microseconds of all calls, as if one after the other.
    pub latency_us: u64,
    /// Attempts after the first of each call.
    pub num_retries: u64,
    /// Cost in billionths of the currency of the prices.
    pub cost_nano: u64,
}

/// Totals of each role and of all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LedgerReport {
    /// Roles that were asked, in the order of a construction.
    pub roles: IndexMap<&'static str, LedgerTotals>,
    /// All calls.
    pub total: LedgerTotals,
}

impl LedgerLine {
    pub(super) fn of(
        user: &str,
        role: LanguageRole,
        result: &Result<LanguageReply, LanguageError>,
        ok: bool,
        prices: &Prices,
    ) -> Self {
        let (num_input_tokens, num_output_tokens, latency_s, num_retries) = match result {
            Ok(reply) => (reply.num_input_tokens, reply.num_output_tokens, reply.latency_s, reply.num_retries),
            Err(error) => (0, 0, error.latency_s, error.num_retries),
        };
        let cost = |tokens: u64, per_million: f64| tokens.saturating_mul((per_million * 1e3).round() as u64);
        Self {
            user: user.to_owned(),
            role,
            num_input_tokens,
            num_output_tokens,
            latency_us: (latency_s * 1e6).round() as u64,
            num_retries: u64::from(num_retries),
            ok,
            cost_nano: cost(num_input_tokens, prices.input_per_million)
                .saturating_add(cost(num_output_tokens, prices.output_per_million)),
        }
    }
}

impl LedgerTotals {
    /// Adds one call.
    pub fn add(&mut self, line: &LedgerLine) {
        self.num_calls += 1;
        self.num_failed += u64::from(!line.ok);
        self.num_input_tokens += line.num_input_tokens;
        self.num_output_tokens += line.num_output_tokens;
        self.latency_us += line.latency_us;
        self.num_retries += line.num_retries;
        self.cost_nano = self.cost_nano.saturating_add(line.cost_nano);
    }

    /// Adds other sums.
    pub fn add_totals(&mut self, other: &Self) {
        self.num_calls += other.num_calls;
        self.num_failed += other.num_failed;
        self.num_input_tokens += other.num_input_tokens;
        self.num_output_tokens += other.num_output_tokens;
        self.latency_us += other.latency_us;
        self.num_retries += other.num_retries;
        self.cost_nano = self.cost_nano.saturating_add(other.cost_nano);
    }

    /// Cost in the currency of the prices.
    pub fn cost(&self) -> f64 {
        self.cost_nano as f64 / 1e9
    }
}

impl LedgerReport {
    /// Sums of the lines.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a LedgerLine>) -> Self {
        let mut by_role = [LedgerTotals::default(); LanguageRole::ALL.len()];
        let mut total = LedgerTotals::default();
        for line in lines {
            by_role[line.role as usize].add(line);
            total.add(line);
        }
        let roles = LanguageRole::ALL.iter().zip(by_role).filter(|(_, totals)| totals.num_calls > 0);
        Self { roles: roles.map(|(role, totals)| (role.name(), totals)).collect(), total }
    }

    /// Sums of all calls that were ever made for the pyramid in `dir`.
    pub fn read(dir: &Path) -> Result<Self, BuildError> {
        let lines: Vec<LedgerLine> = read_lines(&dir.join(LEDGER_FILE))?;
        Ok(Self::of(&lines))
    }

    /// Adds another user's sums.
    pub fn add(&mut self, other: &Self) {
        for role in LanguageRole::ALL.map(LanguageRole::name) {
            if let Some(totals) = other.roles.get(role) {
                self.roles.entry(role).or_default().add_totals(totals);
            }
        }
        self.total.add_totals(&other.total);
    }
}

impl Display for LedgerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("all", self.total)];
        for (name, totals) in self.roles.iter().map(|(name, totals)| (*name, *totals)).chain(all) {
            writeln!(
                f,
                "{name:<10} {:>7} calls ({} refused or failed, {} retries) {:>10} tokens in {:>9} out {:>9.1} s {:>10.4}",
                totals.num_calls,
                totals.num_failed,
                totals.num_retries,
                totals.num_input_tokens,
                totals.num_output_tokens,
                totals.latency_us as f64 / 1e6,
                totals.cost()
            )?;
        }
        Ok(())
    }
}

/// Puts a line at a ledger's end.
pub(super) fn append(disk: &dyn Disk, file: &Path, line: &LedgerLine) -> Result<(), BuildError> {
    let mut text = serde_json::to_string(line).map_err(io::Error::from)?;
    text.push('\n');
    Ok(disk.append(file, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact() {
        let prices = Prices { input_per_million: 0.15, output_per_million: 0.6 };
        let reply = |num_input_tokens, num_output_tokens| {
            Ok(LanguageReply {
                text: String::new(),
                num_input_tokens,
                num_output_tokens,
                latency_s: 0.25,
                num_retries: 1,
            })
        };
        let error = Err(LanguageError { message: "gone".to_owned(), latency_s: 1.5, num_retries: 3 });
        let lines = [
            LedgerLine::of("ann", LanguageRole::Extract, &reply(1_000, 10), true, &prices),
            LedgerLine::of("ann", LanguageRole::Extract, &reply(3, 1), false, &prices),
            LedgerLine::of("bo", LanguageRole::Profile, &error, false, &prices),
        ];
        assert_eq!(lines.each_ref().map(|line| line.cost_nano), [156_000, 1_050, 0]);
        let report = LedgerReport::of(&lines);
        assert_eq!(report.roles.keys().copied().collect::<Vec<_>>(), ["extract", "profile"]);
        let expected = LedgerTotals {
            num_calls: 3,
            num_failed: 2,
            num_input_tokens: 1_003,
            num_output_tokens: 11,
            latency_us: 2_000_000,
            num_retries: 5,
            cost_nano: 157_050,
        };
        assert_eq!(report.total, expected);
        let mut sum = LedgerReport::of(&lines[..1]);
        sum.add(&LedgerReport::of(&lines[1..]));
        assert_eq!(sum, report);
    }
}
