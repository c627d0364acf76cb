"""The words of the embedded grammar: tables to be read, and the little morphology that inflects them.

Every table has one line per entry and one column per language: English | Spanish | French | …. A line says only what
cannot be derived. Nouns carry their gender as an indefinite article and an irregular plural after a comma ("-" for
none: milk). Adjectives give the feminine after a comma when it is irregular. Verbs give, after commas,

- English: the past, when irregular. A verb whose past looks like its base (hit, read) is never used in the present
  tense, so that an English form always says its tense;
- Spanish: the third person of the present and of the preterite, when the stem changes;
- French: for verbs in -er the present when the stem changes, for others participle and both third persons.

English does not mark the gender of a profession: here each profession has one, half of them feminine, so that a
sentence has one translation. The last columns, the kinds, keep sentences sensible: a verb selects the kinds of its
subject and object, an adjective those of its noun.
"""

from __future__ import annotations

from dataclasses import dataclass

NOUNS = """
king | un rey | un roi | person
queen | una reina | une reine | person
prince | un príncipe | un prince | person
princess, princesses | una princesa | une princesse | person
witch, witches | una bruja | une sorcière | person creature
wizard | un mago | un magicien | person creature
ghost | un fantasma | un fantôme | person creature
clown | un payaso | un clown | person
boy | un niño | un garçon | person
girl | una niña | une fille | person
man, men | un hombre | un homme | person
woman, women | una mujer | une femme | person
doctor | una doctora | un médecin | person own
teacher | una profesora | un professeur | person own
student | un estudiante | un étudiant | person own
baker | una panadera | une boulangère | person
farmer | un granjero | un fermier | person
soldier | un soldado | un soldat | person
painter | una pintora | un peintre | person
singer | una cantante | une chanteuse | person
nurse | una enfermera | une infirmière | person own
neighbor | una vecina | une voisine | person own
thief, thieves | un ladrón | un voleur | person
knight | un caballero | un chevalier | person
pirate | un pirata | un pirate | person
friend | un amigo | un ami | person own
brother | un hermano | un frère | person kin
sister | una hermana | une sœur | person kin
cat | un gato | un chat | animal own
dog | un perro | un chien | animal own
horse | un caballo | un cheval, chevaux | animal own
cow | una vaca | une vache | animal own
bird | un pájaro | un oiseau | animal own
duck | un pato | un canard | animal own
rabbit | un conejo | un lapin | animal own
mouse, mice | un ratón | une souris | animal own
wolf, wolves | un lobo | un loup | animal
bear | un oso | un ours | animal
lion | un león | un lion | animal
elephant | un elefante | un éléphant | animal
monkey | un mono | un singe | animal
snake | una serpiente | un serpent | animal creature
frog | una rana | une grenouille | animal creature
turtle | una tortuga | une tortue | animal
spider | una araña | une araignée | animal
owl | un búho | un hibou, hiboux | animal
donkey | un burro | un âne | animal own
dragon | un dragón | un dragon | animal creature
apple | una manzana | une pomme | food
pear | una pera | une poire | food
cake | un pastel | un gâteau | food
pie | una tarta | une tarte | food
egg | un huevo | un œuf | food
carrot | una zanahoria | une carotte | food
tomato, tomatoes | un tomate | une tomate | food
strawberry, strawberries | una fresa | une fraise | food
sandwich, sandwiches | un bocadillo | un sandwich | food
salad | una ensalada | une salade | food
bread, - | un pan | un pain | food
cheese, - | un queso | un fromage | food
soup, - | una sopa | une soupe | food
milk, - | una leche | un lait | drink
coffee, - | un café | un café | drink
tea, - | un té | un thé | drink
wine, - | un vino | un vin | drink
juice, - | un zumo | un jus | drink
beer, - | una cerveza | une bière | drink
book | un libro | un livre | thing text gift weighty
letter | una carta | une lettre | thing text gift
newspaper | un periódico | un journal, journaux | thing news club
poem | un poema | un poème | text own
story, stories | una historia | une histoire | text tale own
song | una canción | une chanson | song own
key | una llave | une clé | thing gift
chair | una silla | une chaise | thing seat
table | una mesa | une table | thing seat
box, boxes | una caja | une boîte | thing holder container
bag | una bolsa | un sac | thing holder club container
bottle | una botella | une bouteille | thing holder
basket | una cesta | un panier | thing holder container
hat | un sombrero | un chapeau | thing clothes gift
coat | un abrigo | un manteau | thing clothes gift weighty
shirt | una camisa | une chemise | thing clothes gift
dress, dresses | un vestido | une robe | thing clothes gift
shoe | un zapato | une chaussure | thing clothes
ring | un anillo | une bague | thing gift
crown | una corona | une couronne | thing gift fragile weighty
sword | una espada | une épée | thing gift weighty
umbrella | un paraguas, paraguas | un parapluie | thing club gift fragile
guitar | una guitarra | une guitare | thing music gift
violin | un violín | un violon | thing music gift
ball | una pelota | une balle | thing gift
spoon | una cuchara | une cuillère | thing dish club
plate | un plato | une assiette | thing dish
clock | un reloj | une horloge | thing gift fragile weighty
map | un mapa | une carte | thing gift
flower | una flor | une fleur | thing gift
bicycle | una bicicleta | un vélo | thing machine
car | un coche | une voiture | thing machine vehicle
boat | un barco | un bateau | thing machine vehicle
train | un tren | un train | vehicle
door | una puerta | une porte | door own
window | una ventana | une fenêtre | door own
house | una casa | une maison | place inside building own
castle | un castillo | un château | place inside building goal own
tower | una torre | une tour | place inside building
school | una escuela | une école | place inside building goal own
church, churches | una iglesia | une église | place inside building goal
hospital | un hospital | un hôpital, hôpitaux | place inside building goal
museum | un museo | un musée | place inside building goal
theater | un teatro | un théâtre | place inside building goal
restaurant | un restaurante | un restaurant | place inside building goal
station | una estación | une gare | place inside building goal
farm | una granja | une ferme | place building goal own
office | una oficina | un bureau | place inside goal own
kitchen | una cocina | une cuisine | place inside own
garden | un jardín | un jardin | place inside own
park | un parque | un parc | place inside goal
market | un mercado | un marché | place inside goal
village | un pueblo | un village | place inside goal own
city, cities | una ciudad | une ville | place inside
street | una calle | une rue | place inside
forest | un bosque | une forêt | place inside
beach, beaches | una playa | une plage | place surface goal
island | una isla | une île | place surface
bridge | un puente | un pont | place surface nearby span
mountain | una montaña | une montagne | place nearby
river | un río | une rivière | place nearby
"""

# English | Spanish | French | kinds of noun | the Spanish verb "to be" it takes
ADJECTIVES = """
green | verde | vert | creature thing door | ser
red | rojo | rouge | thing door machine | ser
blue | azul | bleu | creature thing door | ser
white | blanco | blanc, blanche | animal thing building | ser
black | negro | noir | animal thing | ser
yellow | amarillo | jaune | thing door building | ser
gray | gris | gris | animal thing building | ser
pink | rosa | rose | clothes building machine door | ser
golden | dorado | doré | thing door | ser
big | grande | grand | animal thing place | ser
small | pequeño | petit | animal thing place | ser
old | viejo | vieux, vieille | person animal thing building | ser
young | joven | jeune | person animal | ser
beautiful | hermoso | beau, belle | person animal thing place text song | ser
new | nuevo | nouveau, nouvelle | thing building text song own | ser
tired | cansado | fatigué | person animal | estar
happy | feliz | heureux, heureuse | person | estar
sad | triste | triste | person | estar
angry | enfadado | fâché | person | estar
sick | enfermo | malade | person animal | estar
hungry | hambriento | affamé | person animal | estar
worried | preocupado | inquiet, inquiète | person | estar
nervous | nervioso | nerveux, nerveuse | person animal | estar
brave | valiente | courageux, courageuse | person | ser
rich | rico | riche | person | ser
famous | famoso | célèbre | person text song | ser
intelligent | inteligente | intelligent | person animal | ser
kind | amable | gentil, gentille | person | ser
strong | fuerte | fort | person animal | ser
lazy | perezoso | paresseux, paresseuse | person animal | ser
curious | curioso | curieux, curieuse | person animal | ser
generous | generoso | généreux, généreuse | person | ser
elegant | elegante | élégant | person clothes building | ser
mysterious | misterioso | mystérieux, mystérieuse | person creature place text | ser
dangerous | peligroso | dangereux, dangereuse | animal creature | ser
expensive | caro | cher, chère | gift clothes machine food | ser
heavy | pesado | lourd | weighty holder seat machine door | ser
broken | roto | cassé | fragile music dish machine door seat holder | estar
dirty | sucio | sale | clothes dish holder machine building | estar
clean | limpio | propre | clothes dish machine building | estar
empty | vacío | vide | holder building dish | estar
open | abierto | ouvert | door holder building | estar
closed | cerrado | fermé | door building | estar
strange | extraño | étrange | thing place text song creature | ser
modern | moderno | moderne | building machine | ser
delicious | delicioso | délicieux, délicieuse | food drink | estar
cold | frío | froid | drink food | estar
hot | caliente | chaud | drink | estar
"""

# Adjectives that stand before their noun, as all of them do in English.
BEFORE_NOUN = {
    "es": {"small", "old", "young", "beautiful", "new"},
    "fr": {"big", "small", "old", "young", "beautiful", "new"},
}

# English | Spanish | French | subjects | objects
TRANSITIVE = """
eat, ate | comer | manger | person animal | food
drink, drank | beber | boire, bu, boit, boivent | person | drink
prepare | preparar | préparer | person | food drink
buy, bought | comprar | acheter, achète | person | thing food
sell, sold | vender | vendre, vendu, vend, vendent | person | thing food
steal, stole | robar | voler | person | thing food
lose, lost | perder, pierde | perdre, perdu, perd, perdent | person | gift clothes holder
break, broke | romper | casser | person animal | dish music seat door
wash | lavar | laver | person | clothes dish machine
open | abrir | ouvrir, ouvert, ouvre, ouvrent | person | door holder
close | cerrar, cierra | fermer | person | door holder
paint | pintar | peindre, peint, peint, peignent | person | door seat building machine
draw, drew | dibujar | dessiner | person | gift place
build, built | construir, construye | construire, construit, construit, construisent | person | building span
visit | visitar | visiter | person | building
clean | limpiar | nettoyer, nettoie | person | building dish clothes
read, read | leer | lire, lu, lit, lisent | person | text news
write, wrote | escribir | écrire, écrit, écrit, écrivent | person | text song
sing, sang | cantar | chanter | person | song
play | tocar | jouer | person | music
hear, heard | oír, oye | entendre, entendu, entend, entendent | person animal | song person animal
find, found | encontrar, encuentra | trouver | person animal | thing person animal food
see, saw | ver | voir, vu, voit, voient | person animal | person animal thing place
look at | mirar | regarder | person animal | person animal thing place
look for | buscar | chercher | person animal | thing person animal
wait for | esperar | attendre, attendu, attend, attendent | person | person vehicle
listen to | escuchar | écouter | person animal | person song
follow | seguir, sigue, siguió | suivre, suivi, suit, suivent | person animal | person animal
help | ayudar | aider | person | person animal
kiss | besar | embrasser | person | person
call | llamar | appeler, appelle | person | person animal
protect | proteger | protéger, protège | person animal | person animal
save | salvar | sauver | person animal | person animal
attack | atacar | attaquer | person animal | person animal
wake, woke | despertar, despierta | réveiller | person animal | person animal
push | empujar | pousser | person animal | person seat machine
"""

# English | Spanish | French | subjects
ACTIVITIES = """
sleep, slept | dormir, duerme, durmió | dormir, dormi, dort, dorment | person animal
sing, sang | cantar | chanter | person
dance | bailar | danser | person
work | trabajar | travailler | person
cry, cried | llorar | pleurer | person
run, ran | correr | courir, couru, court, courent | person animal
walk | caminar | marcher | person animal
shout | gritar | crier | person
speak, spoke | hablar | parler | person
jump | saltar | sauter | person animal
study, studied | estudiar | étudier | person
play | jugar, juega | jouer | person animal
"""

# Verbs of coming and going; in Spanish they open the sentence when nothing follows them.
# English | Spanish | French | subjects
MOTION = """
arrive | llegar | arriver | person animal vehicle
leave, left | salir | partir, parti, part, partent | person animal vehicle
come, came | venir, viene | venir, venu, vient, viennent | person animal
return | volver, vuelve | revenir, revenu, revient, reviennent | person animal
enter | entrar | entrer | person animal
go, went | ir, va | aller, allé, va, vont | person
die | morir, muere, murió | mourir, mort, meurt, meurent | person animal
fall, fell | caer, cae | tomber | person animal
disappear | desaparecer | disparaître, disparu, disparaît, disparaissent | person animal thing
appear | aparecer | apparaître, apparu, apparaît, apparaissent | person animal vehicle
"""
# The preposition of their goal, if they can have one: English | Spanish | French | the goal's kind
GOALS = """
arrive | at | a | à | goal
come | to | a | à | goal
return | to | a | à | goal
enter | | en | dans | building
go | to | a | à | goal
"""

# English | Spanish | French | givers | what is given
GIVING = """
give, gave | dar | donner | person | gift
send, sent | enviar, envía | envoyer, envoie | person | gift
show, showed | mostrar, muestra | montrer | person | gift clothes place
bring, brought | traer | apporter | person | gift food drink
offer | ofrecer | offrir, offert, offre, offrent | person | gift food drink
tell, told | contar, cuenta | raconter | person | tale
"""

# Used by rules of their own.
OTHER_VERBS = """
hit, hit | golpear | frapper
hit, hit | golpear | entarter
live | vivir | habiter
"""

IRREGULAR_PRETERITES = {
    "caer": "caí caíste cayó caímos cayeron",
    "construir": "construí construiste construyó construimos construyeron",
    "dar": "di diste dio dimos dieron",
    "ir": "fui fuiste fue fuimos fueron",
    "leer": "leí leíste leyó leímos leyeron",
    "oír": "oí oíste oyó oímos oyeron",
    "traer": "traje trajiste trajo trajimos trajeron",
    "venir": "vine viniste vino vinimos vinieron",
    "ver": "vi viste vio vimos vieron",
}
WITH_ETRE = {"arriver", "partir", "venir", "revenir", "entrer", "aller", "mourir", "tomber", "apparaître"}

# Persons are counted I, you, she, we, they. English | Spanish | French
MODALS = """
want to | quiero quieres quiere queremos quieren | veux veux veut voulons veulent
can | puedo puedes puede podemos pueden | peux peux peut pouvons peuvent
must | debo debes debe debemos deben | dois dois doit devons doivent
going to | voy vas va vamos van | vais vas va allons vont
"""
AVOIR = ["ai", "as", "a", "avons", "ont"]
ETRE = ["suis", "es", "est", "sommes", "sont"]

# English singular, plural | masculine, feminine, and their plurals, in Spanish | and in French | share, in percent
DETERMINERS = """
the the | el la los las | le la les les | 50
this these | este esta estos estas | ce cette ces ces | 6
my my | mi mi mis mis | mon ma mes mes | 5
your your | tu tu tus tus | ton ta tes tes | 4
his his | su su sus sus | son sa ses ses | 4
her her | su su sus sus | son sa ses ses | 4
our our | nuestro nuestra nuestros nuestras | notre notre nos nos | 4
their their | su su sus sus | leur leur leurs leurs | 4
a - | un una - - | un une - - | 20
- some | - - algunos algunas | - - quelques quelques | 6
- many | - - muchos muchas | - - beaucoup_de beaucoup_de | 4
- two | - - dos dos | - - deux deux | 4
- three | - - tres tres | - - trois trois | 3
- four | - - cuatro cuatro | - - quatre quatre | 3
- five | - - cinco cinco | - - cinq cinq | 3
"""
POSSESSIVE = {"my", "your", "his", "her", "our", "their"}
DEFINITE = {"the", "this", "these"} | POSSESSIVE

# English | Spanish | French | the kind of noun that follows
PREPOSITIONS = """
in | en | dans | inside
on | en | sur | surface
near | cerca de | près de | building
near | cerca de | près de | nearby
behind | detrás de | derrière | building
in front of | delante de | devant | building
on | en | sur | seat
in | en | dans | container
"""

# English | Spanish | French: adverbials of time for the past …
PAST_TIMES = """
yesterday | ayer | hier
last night | anoche | hier soir
on monday | el lunes | lundi
on tuesday | el martes | mardi
on wednesday | el miércoles | mercredi
on thursday | el jueves | jeudi
on friday | el viernes | vendredi
on saturday | el sábado | samedi
on sunday | el domingo | dimanche
"""
# … for the present …
PRESENT_TIMES = """
now | ahora | maintenant
every day | cada día | chaque jour
every night | cada noche | chaque nuit
in winter | en invierno | en hiver
in spring | en primavera | au printemps
in summer | en verano | en été
in autumn | en otoño | en automne
"""
# … and for what is wanted or planned.
FUTURE_TIMES = """
tomorrow | mañana | demain
soon | pronto | bientôt
"""
# "last week", "two weeks ago": English | the last one, then the plural, in Spanish | and in French
PERIODS = """
week weeks | la semana pasada, semanas | la semaine dernière, semaines
month months | el mes pasado, meses | le mois dernier, mois
year years | el año pasado, años | la année dernière, ans
"""
MANNERS = """
slowly | lentamente | lentement
quickly | rápidamente | rapidement
patiently | pacientemente | patiemment
carefully | cuidadosamente | soigneusement
"""


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """`source` and `target` hold singular and plural; a noun without plural (milk) repeats its singular."""

    source: tuple[str, str]
    target: tuple[str, str]
    feminine: bool
    countable: bool
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """`target` holds masculine, feminine, and their plurals."""

    source: str
    target: tuple[str, str, str, str]
    kinds: frozenset[str]
    before_noun: bool
    copula: str


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """`past` holds the five persons of the Spanish preterite, or the French participle alone."""

    base: str
    third: str
    source_past: str
    particle: str
    infinitive: str
    present: tuple[str, str]
    past: tuple[str, ...]
    with_etre: bool
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    has_present: bool


def rows(table: str) -> list[list[str]]:
    """The cells of a table above."""
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def english_plural(noun: str) -> str:
    return noun + "s"


def english_third(base: str) -> str:
    if base.endswith("y") and base[-2] not in "aeou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("sh", "ch", "ss", "o")) else "s")


def english_past(base: str) -> str:
    return base + ("d" if base.endswith("e") else "ed")


def spanish_plural(word: str) -> str:
    for ending, plural in {"z": "ces", "ón": "ones", "ín": "ines", "oven": "óvenes"}.items():
        if word.endswith(ending):
            return word.removesuffix(ending) + plural
    return word + ("s" if word[-1] in "aeiouáéó" else "es")


def spanish_feminine(adjective: str) -> str:
    return adjective[:-1] + "a" if adjective.endswith("o") else adjective


def french_plural(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    return word + ("x" if word.endswith("eau") else "s")


def french_feminine(adjective: str) -> str:
    if adjective == "gris":
        return "grise"
    return adjective if adjective.endswith("e") else adjective + "e"


def spanish_preterite(infinitive: str, third: str) -> tuple[str, ...]:
    """The preterite for I, you, she, we, they; `third` is the third person where the stem changes (durmió)."""
    if infinitive in IRREGULAR_PRETERITES:
        return tuple(IRREGULAR_PRETERITES[infinitive].split())
    stem = infinitive[:-2]
    if infinitive.endswith("ar"):
        softened = {"c": stem[:-1] + "qu", "g": stem + "u", "z": stem[:-1] + "c"}.get(stem[-1], stem)
        return softened + "é", stem + "aste", stem + "ó", stem + "amos", stem + "aron"
    third = third or stem + "ió"
    return stem + "í", stem + "iste", third, stem + "imos", third[:-1] + "eron"


def spanish_verb(cell: str) -> tuple[str, tuple[str, str], tuple[str, ...]]:
    """Infinitive, present (third persons) and preterite of a Spanish cell."""
    infinitive, present, past = (cell.split(", ") + ["", ""])[:3]
    present = present or infinitive[:-2] + ("a" if infinitive.endswith("ar") else "e")
    return infinitive, (present, present + "n"), spanish_preterite(infinitive, past)


def french_verb(cell: str) -> tuple[str, tuple[str, str], tuple[str, ...]]:
    """Infinitive, present (third persons) and participle of a French cell."""
    infinitive, *forms = cell.split(", ")
    if len(forms) == 3:
        return infinitive, (forms[1], forms[2]), (forms[0],)
    present = forms[0] if forms else infinitive[:-1]
    return infinitive, (present, present + "nt"), (infinitive[:-2] + "é",)


def read_verb(cells: list[str], language: str) -> Verb:
    english, _, past_form = cells[0].partition(", ")
    base, _, particle = english.partition(" ")
    infinitive, present, past = spanish_verb(cells[1]) if language == "es" else french_verb(cells[2])
    return Verb(
        base=base,
        third=english_third(base),
        source_past=past_form or english_past(base),
        particle=particle,
        infinitive=infinitive,
        present=present,
        past=past,
        with_etre=language == "fr" and infinitive in WITH_ETRE,
        subjects=tuple(cells[3].split()) if len(cells) > 3 else (),
        objects=tuple(cells[4].split()) if len(cells) > 4 else (),
        has_present=past_form != base,
    )


def read_noun(cells: list[str], language: str) -> Noun:
    singular, _, plural = cells[0].partition(", ")
    article, _, target = cells[1 if language == "es" else 2].partition(" ")
    target, _, target_plural = target.partition(", ")
    pluralise = spanish_plural if language == "es" else french_plural
    countable = plural != "-"
    return Noun(
        source=(singular, (plural or english_plural(singular)) if countable else singular),
        target=(target, (target_plural or pluralise(target)) if countable else target),
        feminine=article in ("una", "une"),
        countable=countable,
        kinds=frozenset(cells[3].split()),
    )


def read_adjective(cells: list[str], language: str) -> Adjective:
    masculine, _, feminine = cells[1 if language == "es" else 2].partition(", ")
    feminine = feminine or (spanish_feminine if language == "es" else french_feminine)(masculine)
    pluralise = spanish_plural if language == "es" else french_plural
    return Adjective(
        source=cells[0],
        target=(masculine, feminine, pluralise(masculine), pluralise(feminine)),
        kinds=frozenset(cells[3].split()),
        before_noun=cells[0] in BEFORE_NOUN[language],
        copula=cells[4],
    )
