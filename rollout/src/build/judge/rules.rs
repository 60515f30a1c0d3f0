//! What a judge is told, by rule.

use napmem_reward::JudgeRule;

/// Where the template takes the rule.
pub(super) const PLACE: &str = "{{rule}}";

/// The rule in words.
pub(super) fn text(rule: JudgeRule) -> &'static str {
    match rule {
        JudgeRule::SameMeaning => {
            "The answer is right when it says the same as one of the right answers, in whatever words; more detail does no harm \
             unless it contradicts. A date or number has to agree."
        }
        JudgeRule::Locomo => {
            "Be generous. The answer is right when it is about the same thing as a right answer and agrees with it in what was \
             asked for, however long it is and however it is worded. A time is right when it means the same date or period, even if \
             it is given relative to another one."
        }
        JudgeRule::Complete => {
            "The answer is right when it contains a right answer, is equivalent to one, or gives all the steps that lead to it. It \
             is wrong when it has only a part of what the right answer says."
        }
        JudgeRule::TemporalReasoning => {
            "The answer is right when it contains a right answer, is equivalent to one, or gives all the steps that lead to it. It \
             is wrong when it has only a part of what the right answer says. A number of days, weeks or months that is off by one \
             is still right."
        }
        JudgeRule::KnowledgeUpdate => {
            "The answer is right when it gives the latest state, as a right answer does, even if it also tells what was so before. \
             It is wrong when it gives an earlier state as the present one."
        }
        JudgeRule::Preference => {
            "The right answers describe what a good reply to this user would take into account. The answer is right when it recalls \
             the user's personal information correctly and makes use of it; it does not have to cover every point."
        }
        JudgeRule::Abstention => {
            "What is known about the user does not answer the question, and no right answer is shown. The answer is right exactly \
             when it says so: that the information is missing, was never mentioned, or that something else is known but not what \
             was asked for."
        }
    }
}
