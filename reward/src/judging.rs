//! How strictly a judge compares an answer with the right one.

use crate::answer::Rule;
use serde::{Deserialize, Serialize};

/// What a judge is told to go by. The rules of LongMemEval's question types and of LoCoMo follow what their evaluations ask of a
/// judge (Wu et al., arXiv 2410.10813, section on evaluation; Mem0, arXiv 2504.19413, LLM-as-a-judge), in words of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeRule {
    /// The answer says the same as a right one.
    #[default]
    SameMeaning,
    /// LoCoMo: generous about wording and length, and about how a date is named.
    Locomo,
    /// LongMemEval, facts of one or of several sessions: the whole right answer is in it.
    Complete,
    /// LongMemEval, temporal reasoning: complete, but a count of days may be off by one.
    TemporalReasoning,
    /// LongMemEval, knowledge update: the updated state is in it; what was before may be, too.
    KnowledgeUpdate,
    /// LongMemEval, preferences: the right answer is a rubric of what a personal reply makes use of.
    Preference,
    /// Right exactly when it says that nothing is known.
    Abstention,
}

impl JudgeRule {
    /// All rules.
    pub const ALL: [Self; 7] = [
        Self::SameMeaning,
        Self::Locomo,
        Self::Complete,
        Self::TemporalReasoning,
        Self::KnowledgeUpdate,
        Self::Preference,
        Self::Abstention,
    ];

    /// The rule's name as files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameMeaning => "same_meaning",
            Self::Locomo => "locomo",
            Self::Complete => "complete",
            Self::TemporalReasoning => "temporal_reasoning",
            Self::KnowledgeUpdate => "knowledge_update",
            Self::Preference => "preference",
            Self::Abstention => "abstention",
        }
    }

    /// The rule by which a judge would decide a question; `None` for questions that need none: a choice, or equality.
    ///
    /// `category` is the dataset's own: LongMemEval's question types have rules of their own. LoCoMo's category 5 stands for
    /// questions without an answer, in LongMemEval too.
    pub fn of(rule: &Rule, category: &str) -> Option<Self> {
        match rule {
            Rule::Exact | Rule::Choice => None,
            Rule::Judge { by } => Some(*by),
            Rule::LocomoF1 { category: 5, .. } => Some(Self::Abstention),
            Rule::LocomoF1 { .. } => Some(Self::Locomo),
            Rule::TokenF1 { .. } => Some(match category {
                "single-session-user" | "single-session-assistant" | "multi-session" => Self::Complete,
                "temporal-reasoning" => Self::TemporalReasoning,
                "knowledge-update" => Self::KnowledgeUpdate,
                "single-session-preference" => Self::Preference,
                _ => Self::SameMeaning,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_by_dataset() {
        let token = Rule::TokenF1 { threshold: 0.5 };
        let locomo = |category| Rule::LocomoF1 { category, threshold: 0.5 };
        let cases = [
            (token.clone(), "multi-session", Some(JudgeRule::Complete)),
            (token.clone(), "temporal-reasoning", Some(JudgeRule::TemporalReasoning)),
            (token.clone(), "knowledge-update", Some(JudgeRule::KnowledgeUpdate)),
            (token.clone(), "single-session-preference", Some(JudgeRule::Preference)),
            (token, "mine", Some(JudgeRule::SameMeaning)),
            (locomo(2), "temporal", Some(JudgeRule::Locomo)),
            (locomo(5), "single-session-user", Some(JudgeRule::Abstention)),
            (Rule::Judge { by: JudgeRule::Locomo }, "", Some(JudgeRule::Locomo)),
            (Rule::Choice, "multi-session", None),
            (Rule::Exact, "", None),
        ];
        for (rule, category, expected) in cases {
            assert_eq!(JudgeRule::of(&rule, category), expected, "{rule:?} {category}");
        }
    }

    #[test]
    fn names_are_those_of_files() {
        for rule in JudgeRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
        }
        let plain: Rule = serde_json::from_str(r#"{"kind": "judge"}"#).unwrap();
        assert_eq!(plain, Rule::Judge { by: JudgeRule::SameMeaning });
    }
}
