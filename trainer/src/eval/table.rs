//! An evaluation's results as tables: text for a terminal, Markdown, CSV and LaTeX. They show what `eval.json` holds and nothing else.

use super::figures::Summary;
use super::results::{EvalResults, RowComparison, RowResult};
use std::fmt::Write;

/// Figures that have room on a terminal.
const SHOWN: [&str; 7] = ["score", "accuracy", "f1", "format", "calls", "evidence_hit_ratio", "evidence_seen"];

fn heading<'a>(results: &'a EvalResults, name: &'a str) -> &'a str {
    results.figures.iter().find(|(found, _)| found == name).map_or(name, |(_, heading)| heading)
}

/// Mean and spread over seeds, where there are several.
fn spread(summary: &Summary) -> String {
    match summary.sd {
        Some(sd) => format!("{:.3} ± {sd:.3}", summary.mean),
        None => format!("{:.3}", summary.mean),
    }
}

fn label(row: &RowResult) -> String {
    format!("{} {}", row.policy, row.mode)
}

/// For a terminal: a row each of policies and modes, then right answers by category, then changes against the first row.
pub fn text(results: &EvalResults) -> String {
    let width = results.rows.iter().map(|row| label(row).len()).max().unwrap_or(0).max(8);
    let mut text = format!(
        "{} questions of part {}, {} attempt(s), seeds {:?}; 95% bootstrap intervals over questions\n",
        results.num_questions, results.part, results.num_attempts, results.seeds
    );
    text.push_str(&format!("{:<width$}", ""));
    for name in SHOWN {
        text.push_str(&format!("  {:>15}", heading(results, name)));
    }
    text.push('\n');
    for row in &results.rows {
        let cell = |value: &dyn Fn(&Summary) -> String| {
            SHOWN.iter().fold(String::new(), |line, name| {
                let cell = row.figures.get(*name).map_or("–".to_owned(), value);
                format!("{line}  {cell:>15}")
            })
        };
        let interval = |summary: &Summary| format!("{:.2} to {:.2}", summary.ci95.low, summary.ci95.high);
        text.push_str(&format!("{:<width$}{}\n{:<width$}{}\n", label(row), cell(&spread), "", cell(&interval)));
    }
    text.push_str(&categories(results, width));
    for comparison in &results.comparisons {
        text.push_str(&changes(comparison));
    }
    text
}

fn categories(results: &EvalResults, width: usize) -> String {
    let Some(first) = results.rows.first() else { return String::new() };
    let mut text = format!("{:<width$}", "right");
    for name in first.categories.keys() {
        text.push_str(&format!("  {name:>15}"));
    }
    text.push('\n');
    for row in &results.rows {
        text.push_str(&format!("{:<width$}", label(row)));
        for category in row.categories.values() {
            let cell = category.figures.get("accuracy").map_or("–".to_owned(), spread);
            text.push_str(&format!("  {cell:>15}"));
        }
        text.push('\n');
    }
    text
}

fn changes(comparison: &RowComparison) -> String {
    let change = |name: &str| {
        comparison
            .differences
            .get(name)
            .map_or(String::new(), |d| format!("{name} {:+.3} ({:+.3} to {:+.3})  ", d.mean, d.ci95.low, d.ci95.high))
    };
    let right = comparison.agreement;
    format!(
        "{} {} against the first row: {}{}right in both {}, only there {}, only here {}, neither {}, McNemar's p {}\n",
        comparison.policy,
        comparison.mode,
        change("score"),
        change("accuracy"),
        right.both,
        right.only_first,
        right.only_second,
        right.neither,
        right.mcnemar_text()
    )
}

/// Markdown: every figure of every row with its interval.
pub fn markdown(results: &EvalResults) -> String {
    let mut text = String::from("| policy | mode |");
    for (_, heading) in &results.figures {
        write!(text, " {heading} |").expect("writing to a string cannot fail");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(results.figures.len()));
    text.push('\n');
    for row in &results.rows {
        text.push_str(&format!("| {} | {} |", row.policy, row.mode));
        for (name, _) in &results.figures {
            let cell = row.figures.get(name).map_or("–".to_owned(), |summary| {
                format!("{} [{:.3}, {:.3}]", spread(summary), summary.ci95.low, summary.ci95.high)
            });
            text.push_str(&format!(" {cell} |"));
        }
        text.push('\n');
    }
    text + &format!(
        "\n{} questions of part `{}`, {} attempt(s), seeds {:?}. Mean ± standard deviation over seeds [95% bootstrap interval over \
         questions].\n",
        results.num_questions, results.part, results.num_attempts, results.seeds
    )
}

/// CSV in the long form, every digit kept: policy, mode, category (empty for all), figure, mean, sd, low, high, then each seed's mean.
pub fn csv(results: &EvalResults) -> String {
    let mut text = String::from("policy,mode,category,figure,mean,sd,ci95_low,ci95_high");
    for seed in &results.seeds {
        text.push_str(&format!(",seed_{seed}"));
    }
    text.push('\n');
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for row in &results.rows {
        let all = std::iter::once((String::new(), &row.figures));
        let parts = row.categories.iter().map(|(name, part)| (quoted(name), &part.figures));
        for (category, figures) in all.chain(parts) {
            for (name, _) in &results.figures {
                let Some(summary) = figures.get(name) else { continue };
                let seeds: String = summary.seeds.iter().map(|mean| format!(",{}", number(*mean))).collect();
                text.push_str(&format!(
                    "{},{},{category},{name},{},{},{},{}{seeds}\n",
                    row.policy,
                    row.mode,
                    summary.mean,
                    number(summary.sd),
                    summary.ci95.low,
                    summary.ci95.high
                ));
            }
        }
    }
    text
}

/// A CSV field: categories are the dataset's own words.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// LaTeX: a `tabular` of the figures that fit on a page; needs booktabs.
pub fn latex(results: &EvalResults) -> String {
    let mut text = format!("\\begin{{tabular}}{{ll{}}}\n\\toprule\npolicy & mode", "r".repeat(SHOWN.len()));
    for name in SHOWN {
        text.push_str(&format!(" & {}", escaped(heading(results, name))));
    }
    text.push_str(" \\\\\n\\midrule\n");
    for row in &results.rows {
        text.push_str(&format!("{} & {}", escaped(&row.policy), row.mode));
        for name in SHOWN {
            let cell = row.figures.get(name).map_or("--".to_owned(), |summary| {
                let spread = summary.sd.map_or(String::new(), |sd| format!(" \\pm {sd:.3}"));
                format!(
                    "${:.3}{spread}$ {{\\footnotesize [{:.3}, {:.3}]}}",
                    summary.mean, summary.ci95.low, summary.ci95.high
                )
            });
            text.push_str(&format!(" & {cell}"));
        }
        text.push_str(" \\\\\n");
    }
    text + "\\bottomrule\n\\end{tabular}\n"
}

fn escaped(text: &str) -> String {
    text.chars().map(|c| if "&%$#_{}".contains(c) { format!("\\{c}") } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Interval;
    use napmem_rollout::episode::Mode;
    use std::collections::BTreeMap;

    fn results() -> EvalResults {
        let summary = |sd| Summary {
            mean: 0.1 + 0.2,
            sd,
            ci95: Interval { low: -0.25, high: 0.5 },
            seeds: vec![Some(0.5), None],
        };
        let figures = BTreeMap::from([("score".to_owned(), summary(Some(0.125)))]);
        let category = super::super::CategoryResult { num_questions: 2, figures: figures.clone() };
        EvalResults {
            program: "napmem".to_owned(),
            part: "test".to_owned(),
            num_questions: 2,
            num_attempts: 1,
            seeds: vec![3, 4],
            figures: vec![("score".to_owned(), "score".to_owned()), ("f1".to_owned(), "F1".to_owned())],
            rows: vec![RowResult {
                policy: "a_b".to_owned(),
                mode: Mode::Passive,
                figures,
                categories: BTreeMap::from([("x, \"y\"".to_owned(), category)]),
                first_tools: BTreeMap::new(),
                levels: BTreeMap::new(),
                stops: BTreeMap::new(),
            }],
            comparisons: Vec::new(),
        }
    }

    #[test]
    fn every_format_shows_the_same_numbers() {
        let results = results();
        assert!(
            markdown(&results).contains("| a_b | passive | 0.300 ± 0.125 [-0.250, 0.500] | – |"),
            "{}",
            markdown(&results)
        );
        let csv = csv(&results);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0], "policy,mode,category,figure,mean,sd,ci95_low,ci95_high,seed_3,seed_4");
        // All digits, and a quoted category.
        assert_eq!(lines[1], "a_b,passive,,score,0.30000000000000004,0.125,-0.25,0.5,0.5,");
        assert!(lines[2].starts_with("a_b,passive,\"x, \"\"y\"\"\",score,"), "{}", lines[2]);
        let latex = latex(&results);
        assert!(
            latex.contains("a\\_b & passive & $0.300 \\pm 0.125$ {\\footnotesize [-0.250, 0.500]} & --"),
            "{latex}"
        );
        assert!(text(&results).contains("0.300 ± 0.125"), "{}", text(&results));
    }
}
