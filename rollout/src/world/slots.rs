//! Text templates of what lies in one level only: facts of a record, exact details of a raw message, and
//! knowledge that changed.
//!
//! Placeholders: `{v}` the right value, `{o}` another value of its type (planned, earlier, or somebody else's), `{n}` a friend's
//! name, `{x}` what the slot is about where that varies (a device, a show, an occasion).

use super::lexicon::{self, Words};

/// A user's message and the assistant's reply.
pub type Exchange = (&'static str, &'static str);

/// A lasting fact: a record states it in the question's words. The message behind it does not use these words, and
/// another message does, about somebody else.
pub struct FactSlot {
    /// Where the value comes from.
    pub values: Words,
    /// Record texts.
    pub records: Words,
    /// The message that the record rests on.
    pub sources: &'static [Exchange],
    /// Small talk in the question's words with another value.
    pub decoys: &'static [Exchange],
    /// Questions.
    pub questions: Words,
}

/// Facts that a record states.
pub const FACTS: &[FactSlot] = &[
    FactSlot {
        values: lexicon::DOGS,
        records: &["Has a dog called {v}.", "The dog at home is called {v}."],
        sources: &[
            ("{v} chewed my new shoes again, what a naughty puppy.", "Puppies do that, hide the shoes."),
            ("{v} barked at the mailman for an hour today.", "The poor mailman must be used to it."),
        ],
        decoys: &[
            ("My neighbor has a dog called {o} that never sleeps.", "A dog called {o} next door sounds loud."),
            ("In the park a dog called {o} stole my sandwich.", "A dog called {o} with good taste, I see."),
        ],
        questions: &[
            "What is my dog called?",
            "What is the name of my dog?",
            "Which name does my dog have?",
            "Tell me the name of my dog.",
            "How is my dog called?",
        ],
    },
    FactSlot {
        values: lexicon::CARS,
        records: &["Drives a {v} car.", "Owns a {v} car."],
        sources: &[
            ("The {v} needs new tires again, the old ones squeak.", "Fresh tires are worth the money."),
            ("I washed the {v} by hand today and it shines.", "A clean shine lifts the mood."),
        ],
        decoys: &[
            ("My boss drives a {o} car and took my spot.", "Whoever drives a {o} car wants a big spot."),
            ("I saw a {o} car of a pink brand, so odd.", "A pink {o} car is rare for any brand."),
        ],
        questions: &[
            "Which car do I drive?",
            "What brand is my car?",
            "What kind of car do I own?",
            "Which brand of car do I have?",
            "Tell me which car I drive.",
        ],
    },
    FactSlot {
        values: lexicon::SISTERS,
        records: &["Has a sister called {v}.", "The name of the sister is {v}."],
        sources: &[
            ("{v} and I fought over toys as kids, now we laugh.", "Growing up together leaves good stories."),
            ("{v} still wears my old jacket from our parents' house.", "Family clothes travel far."),
        ],
        decoys: &[
            ("{n} brought a sister called {o} to lunch.", "Lunch with the sister called {o}, how nice."),
            ("On tv a singer thanked a sister called {o}.", "A sister called {o} must be proud."),
        ],
        questions: &[
            "What is my sister called?",
            "What is the name of my sister?",
            "Who is my sister?",
            "Tell me the name of my sister.",
            "Which name does my sister have?",
        ],
    },
    FactSlot {
        values: lexicon::ALLERGENS,
        records: &["Has an allergy, is allergic to {v}.", "Allergic to {v}, a strong allergy."],
        sources: &[
            ("Too much {v} at lunch and my face was red.", "Please take care and drink water."),
            ("There was {v} around and my throat itched all night.", "That sounds bad, stay away from it."),
        ],
        decoys: &[
            ("{n} is allergic to {o} and the allergy got worse.", "An allergic friend with a {o} allergy needs care."),
            ("My boss is allergic to {o}, a strange allergy.", "Being allergic to {o} is a rare allergy."),
        ],
        questions: &[
            "What am I allergic to?",
            "Which allergy do I have?",
            "What is my allergy?",
            "Tell me what I am allergic to.",
            "Against what do I have an allergy?",
        ],
    },
    FactSlot {
        values: lexicon::DOCTORS,
        records: &["The doctor of the family is {v}.", "Sees a doctor named {v}."],
        sources: &[
            ("{v} looked at my knee and told me to rest.", "Then give the knee some rest."),
            ("{v} gave me pills for the cough, they help.", "Glad that the cough gets better."),
        ],
        decoys: &[
            ("On tv there was a doctor named {o} who sang.", "A doctor named {o} who sings, how funny."),
            ("{n} praised a doctor named {o} all evening.", "The doctor {o} must be kind."),
        ],
        questions: &[
            "Who is my doctor?",
            "What is the name of my doctor?",
            "Which doctor do I see?",
            "Tell me who my doctor is.",
            "How is my doctor named?",
        ],
    },
    FactSlot {
        values: lexicon::SUBJECTS,
        records: &["Studied the subject {v} at university.", "The subject studied at university was {v}."],
        sources: &[
            ("My old {v} notes from campus fill a whole shelf.", "Old notes are hard to throw away."),
            ("I dreamed of my {v} exam again after all these years.", "Exam dreams never quite stop."),
        ],
        decoys: &[
            ("{n} studied {o} at a university abroad.", "To study {o} at a university abroad takes courage."),
            ("My cousin will study {o} as a subject at university.", "The subject {o} at university is hard."),
        ],
        questions: &[
            "What did I study at university?",
            "Which subject did I study?",
            "What was my subject at university?",
            "Tell me which subject I studied.",
            "Which university subject did I study?",
        ],
    },
];

/// Knowledge that changed: the record holds the newest value; the older message uses the question's words, the
/// newer one does not.
pub struct UpdateSlot {
    /// Where both values come from.
    pub values: Words,
    /// Record texts, before and after the change.
    pub records: Words,
    /// The older message, with `{o}`.
    pub old: &'static [Exchange],
    /// The newer message, with `{v}`.
    pub new: &'static [Exchange],
    /// Questions.
    pub questions: Words,
}

/// Knowledge that changed.
pub const UPDATES: &[UpdateSlot] = &[
    UpdateSlot {
        values: lexicon::JOBS,
        records: &["Works as {v}, the current job.", "The current job is {v}."],
        old: &[
            ("I work as a {o} and the job keeps me busy.", "A job as {o} is busy work."),
            ("My job as {o} is hard work but fun.", "Fun in the job makes the work light."),
        ],
        new: &[
            ("My first month as a {v} is over, I am happy.", "Congratulations, the start is the hardest."),
            ("They trust me as a {v} already, what a change.", "That trust is well earned."),
        ],
        questions: &[
            "What is my job now?",
            "What is my current job?",
            "Which job do I have now?",
            "Tell me my current job.",
            "What job do I do these days?",
        ],
    },
    UpdateSlot {
        values: lexicon::CITIES,
        records: &["Lives in the city of {v} now.", "The city to live in is {v} now."],
        old: &[
            ("I live in {o}, the city is loud but fun.", "To live in a loud city has its charm."),
            ("The city of {o}, where I live, is full of bridges.", "A city with bridges, a place to live."),
        ],
        new: &[
            ("All boxes are unpacked and {v} feels right already.", "Enjoy the new place and the new streets."),
            ("My first walk through {v} with my own keys, wow.", "A fine start in a new place."),
        ],
        questions: &[
            "In which city do I live now?",
            "What city do I live in?",
            "Which city do I live in these days?",
            "Tell me the city where I live.",
            "In what city do I live today?",
        ],
    },
    UpdateSlot {
        values: lexicon::GYMS,
        records: &["Goes to the gym {v} now.", "The gym is {v} now."],
        old: &[
            ("My gym is {o}, I go twice a week.", "A gym twice a week is great."),
            ("I joined the gym {o} with a friend.", "A gym with a friend is more fun."),
        ],
        new: &[
            ("I signed the papers at {v}, their weights are new.", "New weights, new energy."),
            ("The sauna at {v} is so much better.", "A good sauna is a treat."),
        ],
        questions: &[
            "Which gym do I go to now?",
            "What is my gym now?",
            "What gym do I use these days?",
            "Tell me which gym I use.",
            "At which gym am I now?",
        ],
    },
    UpdateSlot {
        values: lexicon::INSTRUMENTS,
        records: &["Plays the {v} as instrument now.", "The instrument to play is the {v} now."],
        old: &[
            ("The instrument that I play is the {o}.", "To play an instrument is good for you."),
            ("I play the {o}, my instrument since school.", "To play an instrument since school is rare."),
        ],
        new: &[
            ("I sold the old thing, my {v} has a warm sound.", "A warm sound is what counts."),
            ("My fingers hurt after an hour with the {v}.", "Fingers need time to get used to it."),
        ],
        questions: &[
            "Which instrument do I play now?",
            "What instrument do I play these days?",
            "What is my instrument now?",
            "Tell me which instrument I play.",
            "Which instrument do I play today?",
        ],
    },
    UpdateSlot {
        values: lexicon::TRANSPORTS,
        records: &["Commutes by {v} now.", "The commute is by {v} now."],
        old: &[
            ("My commute is by {o}, it takes half an hour.", "Half an hour of commute is fine."),
            ("I commute by {o} and read on the way.", "Reading makes a commute short."),
        ],
        new: &[
            ("I came by {v} today and was early for once.", "Being early feels good."),
            ("The {v} saves me so much time each day.", "Saved time is a gift."),
        ],
        questions: &[
            "How do I commute now?",
            "By what do I commute these days?",
            "What do I use for my commute?",
            "Tell me how I commute.",
            "How do I commute today?",
        ],
    },
];

/// An exact detail of a raw message: the record holds only the plan, with another value.
pub struct DetailSlot {
    /// What the slot is about, for `{x}`; empty where a friend's name tells it.
    pub topics: Words,
    /// The type of the value.
    pub values: DetailValue,
    /// Record texts, with `{o}`.
    pub records: Words,
    /// The message with the plan.
    pub plans: &'static [Exchange],
    /// The message with what really happened.
    pub outcomes: &'static [Exchange],
    /// Questions.
    pub questions: Words,
}

/// What kind of exact detail.
pub enum DetailValue {
    /// A day; `{o}` is the day of the order, `{v}` of the arrival.
    Date,
    /// A sum in dollars.
    Price,
    /// A word of a list.
    Word(Words),
}

/// The order that arrived later than the record's date: every user has it.
pub const ARRIVAL: DetailSlot = DetailSlot {
    topics: lexicon::DEVICES,
    values: DetailValue::Date,
    records: &["Bought a {b} {x} on {o}.", "Owns a {b} {x}, bought on {o}."],
    plans: &[
        ("I pre-ordered a {b} {x} on {o}, hard to wait.", "Waiting for a {x} can be long."),
        ("I paid for a {b} {x} on {o}, a pre-order.", "A pre-order of a {x} needs patience."),
    ],
    outcomes: &[
        ("Guess what, the {x} arrived on {v} and works fine.", "Great that the {x} works fine."),
        ("The {x} arrived on {v} in a huge box.", "A huge box for one {x}."),
    ],
    questions: &[
        "When did my {x} arrive?",
        "On which day did my {x} arrive?",
        "What day did the {x} arrive?",
        "Tell me when my {x} arrived.",
        "On what date did my {x} arrive?",
    ],
};

/// Details of which a user has some.
pub const DETAILS: &[DetailSlot] = &[
    DetailSlot {
        topics: lexicon::SHOWS,
        values: DetailValue::Price,
        records: &["Planned {o} for a {x} ticket.", "The plan was {o} for a {x} ticket."],
        plans: &[
            ("I set aside {o} for a {x} ticket next week.", "Enjoy the {x} next week."),
            ("A {x} ticket for {o} would be fine with me.", "A {x} is worth it."),
        ],
        outcomes: &[
            ("The {x} ticket cost me {v} at the door.", "A {x} ticket at the door is never cheap."),
            ("That {x} ticket really cost {v}, can you believe it.", "The cost of a {x} ticket varies."),
        ],
        questions: &[
            "How much did my {x} ticket cost?",
            "What did the {x} ticket cost?",
            "Tell me the cost of my {x} ticket.",
            "What was the cost of the {x} ticket?",
            "What did my {x} ticket really cost?",
        ],
    },
    DetailSlot {
        topics: lexicon::OCCASIONS,
        values: DetailValue::Word(lexicon::DISHES),
        records: &["Planned {o} for the {x} dinner.", "The {x} dinner was planned with {o}."],
        plans: &[
            ("I want to make {o} for the {x} dinner.", "The {x} dinner will be lovely."),
            ("My idea for the {x} dinner is {o}.", "A good idea for a {x} dinner."),
        ],
        outcomes: &[
            ("We ate {v} at the {x} dinner, the oven broke.", "You ate well at the {x} dinner anyway."),
            ("At the {x} dinner everybody ate {v} with a smile.", "They ate and smiled, a good {x} dinner."),
        ],
        questions: &[
            "What did we eat at the {x} dinner?",
            "Which dish was it that we ate at the {x} dinner?",
            "Tell me what we ate at the {x} dinner.",
            "What was eaten at my {x} dinner?",
            "What did everybody eat at the {x} dinner?",
        ],
    },
    DetailSlot {
        topics: &[],
        values: DetailValue::Word(lexicon::PRESENTS),
        records: &["Planned a {o} as present for {n}.", "A {o} was the planned present for {n}."],
        plans: &[
            ("I want to get a {o} as present for {n}.", "A present for {n} is a kind idea."),
            ("A {o} would be a good present for {n}.", "Any present will please {n}."),
        ],
        outcomes: &[
            ("I gave {n} a {v} as present, the shop had no choice.", "I hope {n} liked the present that you gave."),
            ("The present that I gave {n} was a {v}.", "You gave {n} a present from the heart."),
        ],
        questions: &[
            "Which present did I give {n}?",
            "What present was it that I gave {n}?",
            "Tell me which present I gave {n}.",
            "What did I give {n} as present?",
            "What was the present that I gave {n}?",
        ],
    },
];
