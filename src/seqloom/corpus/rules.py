"""The rules of the embedded grammar: what can be said, and how each language says it.

Every rule builds a `Phrase`, English words and target words together, from the words of `lexicon`.

An English sentence has exactly one translation here. "You" is one friend (tú, tu); "they" are masculine; the English
past is the Spanish preterite and the French passé composé, the past of "to be" the imperfect; where French must know
the gender of a "me", "you" or "us" it takes the masculine (il m'a entarté). Spanish leaves out yo, tú and nosotros:
their English pronouns are linked to the verb, whose ending says the same.

Links: an article, preposition or pronoun is linked to its counterpart; "not" to no, or to both ne and pas; "did" to the
French auxiliary, or to the verb that carries its tense; a French auxiliary without "did" to the English verb; a verb's
particle (look *for*) to the verb; the Spanish clitic that announces a recipient (*le* dio … *a* la reina) to "to".
Only the Spanish personal "a" stands for nothing.

The phenomena a pair is tagged with:

- reordering: an adjective follows its noun, or an English genitive becomes a noun with "de";
- verb_first: the target verb precedes its subject, the English one does not. In Spanish with verbs of coming and going
  that end their clause (llegó la bruja verde); in both languages after "where" and "when", in questions and relatives
  (où habite la sorcière), the only place where a plain French sentence does this;
- agreement: an adjective or participle differs from its dictionary form, by gender or number that English does not
  show (articles alone do not count, or every pair would be tagged);
- clitic: an object pronoun stands before the target verb;
- negation; relative; coordination (of nouns, verb phrases or whole clauses).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from seqloom.corpus import lexicon
from seqloom.corpus.lexicon import Adjective, Noun, Verb, rows
from seqloom.corpus.phrases import (
    ADJECTIVE_BEFORE_VOWEL,
    EMPTY,
    NO_TAGS,
    TAGS,
    Phrase,
    Target,
    Word,
    Words,
    inverted,
    lexical,
    starts_with_vowel,
    straight,
)

T = TypeVar("T")


class Agreement(NamedTuple):
    """What a subject asks of its verb: a person (I, you, she, we, they: 0 to 4) and a gender."""

    person: int
    feminine: bool

    @property
    def plural(self) -> bool:
        return self.person > 2


class Nominal(NamedTuple):
    """A subject or an object: its words, its agreement, and whether a Spanish object would take the personal "a"."""

    phrase: Phrase
    agreement: Agreement
    personal: bool = False


PAST, PRESENT = "past", "present"
MODALS = {english: (spanish.split(), french.split()) for english, spanish, french in rows(lexicon.MODALS)}
# English | Spanish | French | person | feminine. Spanish leaves the subject to the verb where the cell is empty.
SUBJECT_PRONOUNS = {
    "i": ("", "je", Agreement(0, False)),
    "you": ("", "tu", Agreement(1, False)),
    "we": ("", "nous", Agreement(3, False)),
    "he": ("él", "il", Agreement(2, False)),
    "she": ("ella", "elle", Agreement(2, True)),
    "they": ("ellos", "ils", Agreement(4, False)),
}
THIRD_PERSONS = ("he", "she", "they", "they")
PAST_PRONOUNS = ("i", "i", "i", "i", "we", "we", "we", "we", "he", "she", "they")  # one rarely tells you what you did
# English: Spanish direct, indirect; French direct, indirect; agreement
OBJECT_PRONOUNS = {
    "me": ("me", "me", "me", "me", Agreement(0, False)),
    "you": ("te", "te", "te", "te", Agreement(1, False)),
    "him": ("lo", "le", "le", "lui", Agreement(2, False)),
    "her": ("la", "le", "la", "lui", Agreement(2, True)),
    "us": ("nos", "nos", "nous", "nous", Agreement(3, False)),
    "them": ("los", "les", "les", "leur", Agreement(4, False)),
}
# "Her" and "them" come twice, since they make French participles agree. Nobody acts on himself: that is reflexive.
OBJECTS_FOR = {
    0: ("you", "him", "her", "her", "them", "them"),
    1: ("me", "him", "her", "her", "us", "them", "them"),
    2: ("me", "you", "him", "her", "her", "us", "them", "them"),
    3: ("you", "him", "her", "her", "them", "them"),
    4: ("me", "you", "him", "her", "her", "us", "them", "them"),
}
BE = {
    ("ser", PRESENT): ("es", "son"),
    ("ser", PAST): ("era", "eran"),
    ("estar", PRESENT): ("está", "están"),
    ("estar", PAST): ("estaba", "estaban"),
    ("être", PRESENT): ("est", "sont"),
    ("être", PAST): ("était", "étaient"),
}
WITH_MANNER = {"walk", "work", "speak", "eat", "drink", "read", "write", "paint", "draw", "wash", "clean", "prepare"}
IN_RELATIVES = {"buy", "find", "see"}
SOMEWHERE = {"buy", "sell", "find", "lose", "steal", "read", "eat", "drink"}
WHERE = {"sleep", "sing", "dance", "work", "study", "play"}
OWNABLE = {"own", "thing", "food", "drink"}
PLACES = ("inside", "surface", "building", "nearby")


class Grammar:
    """The rules for one direction, with the dice that choose among them.

    Only `random()` is drawn from the generator: its numbers are the same on every machine and Python version.
    """

    def __init__(self, direction: str, seed: int) -> None:
        self.language = direction.removeprefix("en-")
        self.spanish = self.language == "es"
        self.random = random.Random(seed).random
        self.column = 1 if self.spanish else 2
        self.read_lexicon()

    def read_lexicon(self) -> None:
        self.transitive, self.activities, self.giving, self.motion, other_verbs = (
            [lexicon.read_verb(cells, self.language) for cells in rows(table)]
            for table in (lexicon.TRANSITIVE, lexicon.ACTIVITIES, lexicon.GIVING, lexicon.MOTION, lexicon.OTHER_VERBS)
        )
        self.hit, self.pie, self.live = other_verbs
        self.goals = {cells[0]: (cells[1], cells[1 + self.column], cells[4].split()) for cells in rows(lexicon.GOALS)}
        self.all_nouns = [lexicon.read_noun(cells, self.language) for cells in rows(lexicon.NOUNS)]
        self.noun_lists: dict[tuple[str, ...], list[Noun]] = {}
        adjectives = [lexicon.read_adjective(cells, self.language) for cells in rows(lexicon.ADJECTIVES)]
        common = {"person", "animal", "thing"}  # an adjective that fits few nouns counts thrice: no word should be rare
        self.adjectives = {
            noun: [one for one in adjectives if one.kinds & noun.kinds for _ in range(1 if one.kinds & common else 3)]
            for noun in self.all_nouns
        }
        shares = [(cells[0].split(), cells[self.column].split(), int(cells[3])) for cells in rows(lexicon.DETERMINERS)]
        self.determiners = {
            (plural, definite, owned): [
                (source[plural], forms[2 * plural : 2 * plural + 2])
                for source, forms, share in shares
                if source[plural] != "-"
                and (not definite or source[0] in lexicon.DEFINITE)
                and (owned is None or owned == (source[0] in lexicon.POSSESSIVE))
                for _ in range(share)
            ]
            for plural in (False, True)
            for definite in (False, True)
            for owned in (False, True, None)
        }
        self.prepositions = {
            kind: [(cells[0], cells[self.column]) for cells in rows(lexicon.PREPOSITIONS) if cells[3] == kind]
            for kind in (*PLACES, "seat", "container")
        }
        self.times = {
            tense: [(cells[0], cells[self.column]) for cells in rows(table)]
            for tense, table in (
                (PAST, lexicon.PAST_TIMES),
                (PRESENT, lexicon.PRESENT_TIMES),
                ("", lexicon.FUTURE_TIMES),
            )
        }
        self.periods = [(cells[0].split(), cells[self.column].split(", ")) for cells in rows(lexicon.PERIODS)]
        self.manners = [(cells[0], cells[self.column]) for cells in rows(lexicon.MANNERS)]
        goers = [verb for verb in self.motion if verb.base in self.goals]
        actions = self.transitive + self.activities + self.giving + 2 * goers + 3 * [self.hit]
        self.actions = {
            kind: [verb for verb in actions if kind in verb.subjects or (verb is self.hit and kind == "person")]
            for kind in ("person", "animal")
        }
        self.makers = {
            noun: [
                verb for verb in self.transitive if verb.base in IN_RELATIVES and noun.kinds.intersection(verb.objects)
            ]
            for noun in self.all_nouns
        }
        self.moods = [
            adjective for adjective in adjectives if adjective.copula == "estar" and "person" in adjective.kinds
        ]

    # Dice

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, share: float) -> bool:
        return self.random() < share

    def nouns(self, kinds: Sequence[str]) -> list[Noun]:
        key = tuple(kinds)
        if key not in self.noun_lists:
            self.noun_lists[key] = [noun for noun in self.all_nouns if noun.kinds.intersection(key)]
        return self.noun_lists[key]

    def tell(self, source: str, spanish: str, french: str) -> Phrase:
        return lexical(source, spanish if self.spanish else french)

    # Nouns

    def determiner(self, noun: Noun, plural: bool, definite: bool) -> Phrase:
        kinds = noun.kinds
        owned = True if "kin" in kinds else None if kinds & OWNABLE else False
        source, forms = self.pick(self.determiners[plural, definite or not noun.countable, owned])
        return lexical(source, forms[noun.feminine].replace("_", " "))

    def adjective(self, adjective: Adjective, agreement: Agreement) -> Phrase:
        form = adjective.target[agreement.feminine + 2 * agreement.plural]
        phrase = lexical(adjective.source, form)
        return phrase if form == adjective.target[0] else phrase.tagged("agreement")

    def noun_group(self, noun: Noun, plural: bool, adjectives: Sequence[Adjective]) -> Phrase:
        """A noun with its adjectives: in English all before it, in the target language some before and some after."""
        agreement = Agreement(4 if plural else 2, noun.feminine)
        group = lexical(noun.source[plural], noun.target[plural])
        for adjective in reversed(adjectives):
            phrase = self.adjective(adjective, agreement)
            if not adjective.before_noun:
                group = inverted(phrase, group).tagged("reordering")
                continue
            text, links = phrase.target[0]
            if not (self.spanish or plural) and starts_with_vowel(group.target[0][0]):
                text = ADJECTIVE_BEFORE_VOWEL.get(text, text)
            group = straight(Phrase(phrase.source, ((text, links),), phrase.tags), group)
        return group

    def some_adjectives(self, noun: Noun) -> list[Adjective]:
        """Mostly none, sometimes one, now and then a small green one: one on each side of the target noun."""
        fitting = self.adjectives[noun]
        if not fitting or self.chance(0.62):
            return []
        first = self.pick(fitting)
        if first.before_noun and self.chance(0.3):
            return [first] + [second for second in [self.pick(fitting)] if not second.before_noun]
        return [first]

    def noun_phrase(
        self, kinds: Sequence[str], definite: bool = False, bare: bool = False, singular: bool = False
    ) -> Nominal:
        """A noun with determiner, perhaps adjectives, perhaps (unless bare) a relative clause."""
        noun = self.pick(self.nouns(kinds))
        plural = noun.countable and not singular and self.chance(0.2 if "place" in noun.kinds else 0.37)
        group = self.noun_group(noun, plural, self.some_adjectives(noun))
        animate = bool(noun.kinds & {"person", "animal"})
        if not animate and self.chance(0.07):
            phrase = self.genitive(noun, plural, group)
        else:
            phrase = straight(self.determiner(noun, plural, definite), group)
        definite = phrase.source[0].text in lexicon.DEFINITE
        if not bare and self.chance(0.15 if animate else 0.3) and self.can_be_relative(noun):
            phrase = straight(phrase, self.relative(noun, plural)).tagged("relative")
        personal = "person" in noun.kinds or ("animal" in noun.kinds and definite)
        return Nominal(phrase, Agreement(4 if plural else 2, noun.feminine), personal)

    def genitive(self, noun: Noun, plural: bool, group: Phrase) -> Phrase:
        """The witch's house: the house of the witch."""
        owner = self.pick(self.nouns(("person",)))
        possessor = straight(self.determiner(owner, False, True), lexical(*(owner.source[0], owner.target[0])))
        mark = (Word("'s"),)
        articles = ("el", "la", "los", "las") if self.spanish else ("le", "la", "les", "les")
        article = (articles[noun.feminine + 2 * plural], mark)
        target = (article, *group.target, ("de", mark), *possessor.target)
        return Phrase(possessor.source + mark + group.source, target, group.tags | TAGS["reordering"])

    def subject(self, kind: str, pronouns: Sequence[str], definite: bool = False, bare: bool = False) -> Nominal:
        """A pronoun, two people, or a noun phrase."""
        if pronouns and self.chance(0.6):
            source = self.pick(pronouns)
            spanish, french, agreement = SUBJECT_PRONOUNS[source]
            return Nominal(self.tell(source, spanish, french), agreement)
        first = self.noun_phrase((kind,), definite, bare)
        if kind == "person" and not bare and self.chance(0.07):
            first, second = self.noun_phrase((kind,), True, True), self.noun_phrase((kind,), True, True)
            return Nominal(self.both(first.phrase, second.phrase), self.plural_of(first, second))
        return first

    def plural_of(self, first: Nominal, second: Nominal) -> Agreement:
        return Agreement(4, first.agreement.feminine and second.agreement.feminine)

    def both(self, first: Phrase, second: Phrase) -> Phrase:
        return straight(first, self.tell("and", "y", "et"), second).tagged("coordination")

    def direct_object(self, kinds: Sequence[str], definite: bool, bare: bool) -> Phrase:
        phrases = [self.accusative(self.noun_phrase(kinds, definite, bare))]
        if not definite and not bare and self.chance(0.09):
            phrases = [self.accusative(self.noun_phrase(kinds, definite, True)) for _ in range(2)]
        return phrases[0] if len(phrases) == 1 else self.both(*phrases)

    def accusative(self, nominal: Nominal) -> Phrase:
        """Spanish people are seen with the personal "a", and so are animals one knows."""
        if self.spanish and nominal.personal:
            return straight(Phrase((), (("a", ()),)), nominal.phrase)
        return nominal.phrase

    def location(self, kinds: Sequence[str] = PLACES) -> Phrase:
        kind = self.pick(kinds)
        preposition = lexical(*self.pick(self.prepositions[kind]))
        return straight(preposition, self.noun_phrase((kind,), definite=self.chance(0.85), bare=True).phrase)

    # Verbs

    def predicate(
        self,
        verb: Verb,
        subject: Nominal,
        tense: str,
        negative: bool = False,
        *,
        pronoun: Word | None = None,
        clitic: str = "",
        clitic_links: Words = (),
        tail: Words = (),
        preceding_object: Agreement | None = None,
    ) -> Phrase:
        """The verb with all that clings to it: auxiliaries, negation, particle, object pronoun.

        `clitic` is the target pronoun, `pronoun` its English word, said after the verb; `tail` are English words said
        later that the target verb stands for as well; a French participle agrees with `preceding_object`.
        """
        person = subject.agreement.person
        base = Word(verb.base)
        negation = Word("not")
        # English first: which words carry tense and person (finite), negation (no), and the meaning (main)?
        source: Words
        finite: Words
        no: Words = (negation,)
        extra: Words = ()
        if tense in (PAST, PRESENT) and not negative:
            base.text = verb.source_past if tense == PAST else verb.third if person == 2 else verb.base
            source = finite = (base,)
        elif tense in (PAST, PRESENT):
            finite = (Word("did" if tense == PAST else "does" if person == 2 else "do"),)
            source = (*finite, negation, base)
        elif tense == "want to":
            to = Word("to")
            extra = (to,)
            if negative:
                finite = (Word("does" if person == 2 else "do"), Word("want"))
                source = (finite[0], negation, finite[1], to, base)
            else:
                finite = (Word("wants" if person == 2 else "want"),)
                source = (*finite, to, base)
        elif tense == "going to":
            to = Word("to")
            extra = (to,)
            finite = (Word(("am", "are", "is", "are", "are")[person]), Word("going"))
            source = (finite[0], *((negation,) if negative else ()), finite[1], to, base)
        elif tense == "can" and negative:
            no = finite = (Word("cannot"),)
            source = (*finite, base)
        else:
            finite = (Word(tense),)
            source = (*finite, *((negation,) if negative else ()), base)
        main: Words = (base,)
        if verb.particle:
            main += (Word(verb.particle),)
            source += main[1:]
        main += tail
        if pronoun:
            source += (pronoun,)
            clitic_links = (pronoun,)
        if not subject.phrase.target:  # a Spanish subject that only the verb's ending shows
            finite += subject.phrase.source

        # The target: a finite verb, and what follows it.
        tags = TAGS["negation"] if negative else NO_TAGS
        rest: tuple[Target, ...] = ()
        clitics: tuple[Target, ...] = ((clitic, clitic_links),) if clitic else ()
        both = finite + tuple([word for word in main if word not in finite])
        if tense == PRESENT:
            head = (verb.present[person == 4], both)
        elif tense != PAST:
            head = (MODALS[tense][not self.spanish][person], finite)
            if self.spanish and tense == "going to":
                rest = (("a", extra), (verb.infinitive, main))
            else:
                rest = ((verb.infinitive, extra + main),)
        elif self.spanish:
            head = (verb.past[person], both)
        else:
            head = ((lexicon.ETRE if verb.with_etre else lexicon.AVOIR)[person], finite)
            participle = french_participle(verb.past[0], subject.agreement if verb.with_etre else preceding_object)
            tags = tags if participle == verb.past[0] else tags | TAGS["agreement"]
            rest = ((participle, main),)
        if pronoun:
            tags |= TAGS["clitic"]
        if self.spanish:
            return Phrase(source, ((("no", no),) if negative else ()) + clitics + (head, *rest), tags)
        if tense not in (PAST, PRESENT):  # il veut me voir
            rest, clitics = clitics + rest, ()
        if negative:
            return Phrase(source, (("ne", no), *clitics, head, ("pas", no), *rest), tags)
        return Phrase(source, (*clitics, head, *rest), tags)

    def verb_phrase(
        self, kind: str, subject: Nominal, tense: str, negative: bool = False, bare: bool = False
    ) -> Phrase:
        """Something that a person or an animal does, to somebody, to something or somewhere."""
        verb = self.pick(self.actions[kind])
        if verb.with_etre and subject.agreement.person in (0, 1, 3):  # je suis arrivé: but is it a man?
            verb = self.pick(self.activities)
        if tense == PRESENT and not verb.has_present:
            return straight(self.predicate(self.live, subject, tense, negative), self.location())
        if verb is self.hit:
            return self.hitting(subject, tense, negative, pie=self.chance(0.5))
        if verb in self.giving:
            return self.giving_phrase(verb, subject, tense, negative)
        if verb.objects == ("music",):
            return self.playing(verb, subject, tense, negative)
        if verb in self.motion:
            return self.going(verb, subject, tense, negative)
        if verb in self.activities:
            after = EMPTY if verb.base == "walk" or self.chance(0.35) else self.location()
            if verb.base in WITH_MANNER and self.chance(0.3):
                after = lexical(*self.pick(self.manners))
            return straight(self.predicate(verb, subject, tense, negative), after)
        if "person" in verb.objects and self.chance(0.5):
            phrase = self.with_pronoun(verb, subject, tense, negative, indirect=False)
        else:
            done_to = self.direct_object(verb.objects, definite=negative, bare=bare)
            phrase = straight(self.predicate(verb, subject, tense, negative), done_to)
        if "relative" in phrase.tags:
            return phrase  # what followed would seem to belong to the relative clause
        if verb.base in WITH_MANNER and self.chance(0.15):
            return straight(phrase, lexical(*self.pick(self.manners)))
        if ("person" in verb.objects or verb.base in SOMEWHERE) and self.chance(0.17):
            return straight(phrase, self.location())
        return phrase

    def with_pronoun(
        self,
        verb: Verb,
        subject: Nominal,
        tense: str,
        negative: bool,
        indirect: bool = False,
        tail: Words = (),
        source: str = "",
    ) -> Phrase:
        """He saw me: él me vio, il m'a vu."""
        source = source or self.pick(OBJECTS_FOR[subject.agreement.person])
        forms = OBJECT_PRONOUNS[source]
        return self.predicate(
            verb,
            subject,
            tense,
            negative,
            pronoun=Word(source),
            clitic=(forms[:2] if self.spanish else forms[2:4])[indirect],
            tail=tail,
            preceding_object=None if indirect else forms[4],
        )

    def playing(self, verb: Verb, subject: Nominal, tense: str, negative: bool) -> Phrase:
        """Played the guitar: in French, of the guitar."""
        noun = self.pick(self.nouns(("music",)))
        played = self.predicate(verb, subject, tense, negative)
        of = EMPTY if self.spanish else Phrase((), (("de", played.source[-1:]),))
        instrument = self.noun_group(noun, False, self.some_adjectives(noun))
        return straight(played, of, self.determiner(noun, False, True), instrument)

    def hitting(self, subject: Nominal, tense: str, negative: bool, pie: bool, pronoun: str = "") -> Phrase:
        """With an umbrella both languages say what English says; for a pie, French has a verb of its own."""
        verb = self.hit
        tail: Words = ()
        if not pie:
            preposition = self.tell("with", "con", "avec")
            instrument = straight(preposition, self.noun_phrase(("club",), definite=negative, bare=True).phrase)
        elif self.spanish:
            instrument = straight(lexical("with", "con"), lexical("a", "una"), lexical("pie", "tarta"))
        else:
            verb, instrument = self.pie, lexical("with a pie", "")
            tail = instrument.source
        if pronoun or self.chance(0.6):
            return straight(self.with_pronoun(verb, subject, tense, negative, tail=tail, source=pronoun), instrument)
        victim = self.accusative(self.noun_phrase(("person",), definite=negative, bare=True))
        return straight(self.predicate(verb, subject, tense, negative, tail=tail), victim, instrument)

    def giving_phrase(self, verb: Verb, subject: Nominal, tense: str, negative: bool) -> Phrase:
        """She gave me a ring, or: she gave a ring to the king (Spanish announces him: le dio … al rey)."""
        gift = self.noun_phrase(verb.objects, definite=negative, bare=True).phrase
        if self.chance(0.5):
            return straight(self.with_pronoun(verb, subject, tense, negative, indirect=True), gift)
        to = (Word("to"),)
        receiver = self.noun_phrase(("person",), definite=True, bare=True)
        announced = ("les" if receiver.agreement.plural else "le") if self.spanish else ""
        given = self.predicate(verb, subject, tense, negative, clitic=announced, clitic_links=to)
        return straight(given, gift, Phrase(to, (("a" if self.spanish else "à", to),)), receiver.phrase)

    def going(self, verb: Verb, subject: Nominal, tense: str, negative: bool) -> Phrase:
        """She returned to the castle; she entered the castle (in Spanish and French: into it)."""
        source, target, kinds = self.goals[verb.base]
        goal = self.noun_phrase(kinds, definite=True, bare=True, singular=True).phrase
        gone = self.predicate(verb, subject, tense, negative)
        preposition = lexical(source, target) if source else Phrase((), ((target, gone.source[-1:]),))
        return straight(gone, preposition, goal)

    def can_be_relative(self, noun: Noun) -> bool:
        return bool(self.makers[noun] or noun.kinds & {"person", "animal"})

    def relative(self, noun: Noun, plural: bool) -> Phrase:
        """Who did it, that somebody bought, where somebody lives."""
        antecedent = Nominal(Phrase((), (("", ()),)), Agreement(4 if plural else 2, noun.feminine))
        for kind in ("person", "animal"):
            if kind in noun.kinds:
                tense = PAST if self.chance(0.7) else PRESENT
                pronoun = self.tell("who" if kind == "person" else "that", "que", "qui")
                return straight(pronoun, self.verb_phrase(kind, antecedent, tense, bare=True))
        if "building" in noun.kinds and self.chance(0.5):
            inhabitant = self.noun_phrase(("person",), definite=True, bare=True)
            verb = self.live if self.chance(0.7) else self.pick([one for one in self.activities if one.base in WHERE])
            what = inverted(inhabitant.phrase, self.predicate(verb, inhabitant, PRESENT)).tagged("verb_first")
            return straight(self.tell("where", "donde", "où"), what)
        doer = self.subject("person", PAST_PRONOUNS, bare=True)
        verb = self.pick(self.makers[noun])
        done = self.predicate(verb, doer, PAST, preceding_object=antecedent.agreement)
        return straight(self.tell("that", "que", "que"), doer.phrase, done)

    # Clauses

    def pronouns(self, tense: str) -> Sequence[str]:
        return THIRD_PERSONS if tense == PRESENT else PAST_PRONOUNS if tense == PAST else tuple(SUBJECT_PRONOUNS)

    def action(self, tense: str, negative: bool, bare: bool = False, later: bool = False) -> Phrase:
        kind = "animal" if self.chance(0.2) else "person"
        pronouns = THIRD_PERSONS if later else self.pronouns(tense)
        subject = self.subject(kind, pronouns if kind == "person" else (), definite=negative, bare=bare)
        return straight(subject.phrase, self.verb_phrase(kind, subject, tense, negative, bare))

    def event(
        self,
        tense: str,
        negative: bool,
        followed: bool = False,
        bare: bool = False,
        pronouns: Sequence[str] = THIRD_PERSONS,
    ) -> Phrase:
        """Somebody arrived. In Spanish the verb comes first, unless the subject is a pronoun or something follows."""
        verb = self.pick(self.motion)
        while verb.base == "go":
            verb = self.pick(self.motion)
        kind = self.pick(verb.subjects)
        subject = self.subject(kind, pronouns if kind == "person" else (), negative, bare)
        return self.happening(subject, verb, tense, negative, followed)

    def happening(self, subject: Nominal, verb: Verb, tense: str, negative: bool, followed: bool) -> Phrase:
        predicate = self.predicate(verb, subject, tense, negative)
        if not self.spanish or followed or subject.phrase.source[0].text in THIRD_PERSONS:
            return straight(subject.phrase, predicate)
        return inverted(subject.phrase, predicate).tagged("verb_first")

    def be(self, copula: str, agreement: Agreement, tense: str, negative: bool = False, links: Words = ()) -> Phrase:
        copula = copula if self.spanish else "être"
        source = ("are" if agreement.plural else "is") if tense == PRESENT else "were" if agreement.plural else "was"
        verb = (Word(source),)
        head = (BE[copula, tense][agreement.plural], verb + links)
        if not negative:
            return Phrase(verb, (head,))
        no = (Word("not"),)
        if self.spanish:
            return Phrase(verb + no, (("no", no), head), TAGS["negation"])
        return Phrase(verb + no, (("ne", no), head, ("pas", no)), TAGS["negation"])

    def state(self, tense: str, negative: bool, bare: bool = False) -> Phrase:
        """The houses are white."""
        noun = self.pick(self.all_nouns)
        while len(self.adjectives[noun]) < 2:
            noun = self.pick(self.all_nouns)
        plural = noun.countable and self.chance(0.4)
        subject = straight(self.determiner(noun, plural, True), lexical(noun.source[plural], noun.target[plural]))
        agreement = Agreement(4 if plural else 2, noun.feminine)
        adjective = self.pick([one for one in self.adjectives[noun] if one.source != "new"])  # neuf or nouveau?
        if "person" in noun.kinds and self.chance(0.25):
            pronoun = self.pick(THIRD_PERSONS)
            spanish, french, agreement = SUBJECT_PRONOUNS[pronoun]
            subject = self.tell(pronoun, spanish, french)
        elif not bare and self.chance(0.15) and self.can_be_relative(noun):
            subject = straight(subject, self.relative(noun, plural)).tagged("relative")
        return straight(
            subject, self.be(adjective.copula, agreement, tense, negative), self.quality(adjective, agreement)
        )

    def quality(self, adjective: Adjective, agreement: Agreement) -> Phrase:
        very = self.tell("very", "muy", "très") if "person" in adjective.kinds and self.chance(0.3) else EMPTY
        return straight(very, self.adjective(adjective, agreement))

    def whereabouts(self, tense: str, negative: bool) -> Phrase:
        """The key is on the table, the king was in the garden."""
        if self.chance(0.5):
            subject = self.noun_phrase(("gift", "dish", "clothes"), definite=True, bare=True)
            where = self.location(("seat", "container", "inside"))
        else:
            subject = self.noun_phrase(("person", "animal"), definite=True, bare=True)
            where = self.location()
        return straight(subject.phrase, self.be("estar", subject.agreement, tense, negative), where)

    def existence(self, tense: str) -> Phrase:
        """There are two cats in the kitchen."""
        while True:
            thing = self.noun_phrase(("person", "animal", "thing"), bare=True)
            if thing.phrase.source[0].text not in lexicon.DEFINITE:
                break
        there_is = "there " + self.be("ser", thing.agreement, tense).source[0].text
        present = tense == PRESENT
        head = self.tell(there_is, "hay" if present else "había", "il y a" if present else "il y avait")
        return straight(head, thing.phrase, self.location())

    def clause(
        self, tense: str, timed: bool = False, followed: bool = False, bare: bool = False, later: bool = False
    ) -> Phrase:
        """Anything that can be said; with an adverbial of time, only what happens.

        `later` clauses are not about "I" or "we", whom Spanish would have to name again to mark the change of subject.
        """
        negative = self.chance(0.13)
        dice = 0.25 + 0.75 * self.random() if timed else self.random()
        if dice > 0.38 or tense in ("want to", "can", "must"):
            return self.action(tense, negative, bare, later)
        if dice > 0.25 or tense == "going to":
            return self.event(tense, negative, followed, bare)
        if dice > 0.08:
            return self.state(tense, negative, bare)
        return self.whereabouts(tense, negative) if dice > 0.03 else self.existence(tense)

    # Sentences

    def tense(self) -> str:
        dice = self.random()
        return PAST if dice < 0.60 else PRESENT if dice < 0.86 else self.pick((*MODALS, "going to"))

    def time(self, tense: str) -> Phrase:
        """Yesterday, last week, two weeks ago."""
        dice = self.random()
        if tense != PAST or dice < 0.7:
            return lexical(*self.pick(self.times[tense if tense in self.times else ""]))
        (english, english_plural), (last, plural) = self.pick(self.periods)
        if dice < 0.85:
            article, noun, adjective = last.split()
            source = (Word("last"), Word(english))
            target = ((article, source[:1]), (noun, source[1:]), (adjective, source[:1]))
            return Phrase(source, target, TAGS["reordering"])
        number, spanish, french = self.pick(
            (("two", "dos", "deux"), ("three", "tres", "trois"), ("four", "cuatro", "quatre"))
        )
        many = straight(self.tell(number, spanish, french), lexical(english_plural, plural))
        return inverted(many, self.tell("ago", "hace", "il y a"))

    def simple(self) -> Phrase:
        tense = self.tense()
        dice = self.random()
        if dice < 0.08:
            return straight(self.time(tense), self.clause(tense, timed=True))
        if dice < 0.18:
            return straight(self.clause(tense, timed=True, followed=True, bare=True), self.time(tense))
        return self.clause(tense)

    def shared_subject(self) -> Phrase:
        """The king ate the cake and drank the wine."""
        tense = self.tense()
        subject = self.subject(
            "person",
            THIRD_PERSONS if tense == PRESENT else PAST_PRONOUNS if tense == PAST else tuple(SUBJECT_PRONOUNS),
            bare=True,
        )
        second = Nominal(Phrase((), (("", ()),)), subject.agreement)
        return straight(
            subject.phrase,
            self.both(
                self.verb_phrase("person", subject, tense, bare=True),
                self.verb_phrase("person", second, tense, bare=True),
            ),
        )

    def clauses(self, number: int) -> Phrase:
        """Several things happen, one after the other."""
        tense = PAST if self.chance(0.75) else PRESENT
        parts = [self.clause(tense, bare=True)]
        for _ in range(number - 2):
            parts += [lexical(",", ","), self.clause(tense, bare=True, later=True)]
        dice = self.random()
        if number == 2 and dice < 0.25:
            parts += [lexical(",", ","), self.tell("but", "pero", "mais")]
        else:
            parts.append(self.tell("and", "y", "et"))
            if dice > 0.85:
                parts.append(self.tell("then", "luego", "puis"))
        return straight(*parts, self.clause(tense, bare=True, later=True)).tagged("coordination")

    def when(self) -> Phrase:
        """The king sang when the witch arrived."""
        main = self.action(PAST, False, bare=True)
        return straight(main, self.tell("when", "cuando", "quand"), self.event(PAST, False, bare=True, pronouns=()))

    def because(self) -> Phrase:
        """The queen slept because she was tired: Spanish leaves "she" to the verb."""
        subject = self.subject("person", (), bare=True)
        main = straight(self.predicate(self.pick(self.activities), subject, PAST), self.location())
        feminine, plural = subject.agreement.feminine, subject.agreement.plural
        source = "they" if plural else "she" if feminine else "he"
        pronoun = self.tell(source, "", ("elles" if feminine else "ils") if plural else "elle" if feminine else "il")
        adjective = self.pick(self.moods)
        return straight(
            subject.phrase,
            main,
            self.tell("because", "porque", "parce que"),
            pronoun,
            self.be("estar", subject.agreement, PAST, links=pronoun.source if self.spanish else ()),
            self.quality(adjective, subject.agreement),
        )

    def question(self) -> Phrase:
        """Who slept, where is the key, where does the witch live, when did she arrive."""
        dice = self.random()
        if dice < 0.25:
            who = Nominal(self.tell("who", "quién", "qui"), Agreement(2, False))
            return straight(who.phrase, self.verb_phrase("person", who, PAST, bare=True))
        if dice < 0.5:
            thing = self.noun_phrase(("person", "animal", "thing"), definite=True)
            copula = self.be("estar", thing.agreement, PRESENT if self.chance(0.6) else PAST)
            return straight(self.tell("where", "dónde", "où"), copula, thing.phrase)
        if dice < 0.75:
            tense = PAST if self.chance(0.5) else PRESENT
            asked = self.tell("where", "dónde", "où")
            verb = self.pick(
                [one for one in self.activities if one.base in WHERE] + (4 * [self.live] if tense == PRESENT else [])
            )
        else:
            tense = PAST
            asked = self.tell("when", "cuándo", "quand")
            verb = self.pick([one for one in self.motion if one.base != "go"])
        subject = self.noun_phrase((self.pick(verb.subjects or ("person",)),), definite=True)
        auxiliary = Word("did" if tense == PAST else "do" if subject.agreement.plural else "does")
        base = Word(verb.base)
        stated = self.predicate(verb, subject, tense)
        links = {0: (auxiliary,), 1: (base,)} if len(stated.target) == 2 else {0: (auxiliary, base)}
        target = tuple([(text, links[position]) for position, (text, _) in enumerate(stated.target)])
        source = (auxiliary, *subject.phrase.source, base)
        asking = Phrase(source, target + subject.phrase.target, subject.phrase.tags | stated.tags | TAGS["verb_first"])
        return straight(asked, asking)

    def sentence(self) -> Phrase:
        dice = self.random()
        if dice < 0.60:
            return self.simple()
        if dice < 0.69:
            return self.question()
        if dice < 0.74:
            return self.shared_subject()
        if dice < 0.78:
            return self.when()
        if dice < 0.82:
            return self.because()
        return self.clauses(self.pick((2, 2, 2, 2, 2, 2, 3, 3, 4, 5)))

    def long_sentence(self) -> Phrase:
        return self.clauses(self.pick((3, 4, 4, 5)))

    def famous(self) -> Phrase:
        """The two sentences that every course on translation shows."""
        if self.spanish:
            witch = next(noun for noun in self.all_nouns if noun.source[0] == "witch")
            green = next(adjective for adjective in self.adjectives[witch] if adjective.source == "green")
            subject = straight(lexical("the", "la"), self.noun_group(witch, False, [green]))
            return self.happening(Nominal(subject, Agreement(2, True)), self.motion[0], PAST, False, False)
        subject_words, agreement = lexical("he", "il"), Agreement(2, False)
        hit = self.hitting(Nominal(subject_words, agreement), PAST, False, pie=True, pronoun="me")
        return straight(subject_words, hit)


def french_participle(participle: str, agreement: Agreement | None) -> str:
    """A participle agrees with the subject of être, and with an object said before it (la pomme qu'il a mangée)."""
    if agreement is None:
        return participle
    participle += "e" if agreement.feminine else ""
    return participle + ("s" if agreement.plural and not participle.endswith("s") else "")
