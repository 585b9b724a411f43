"""What an author can state about collection, labelling, bias and use: the Croissant RAI vocabulary 1.0.

Twenty properties of the dataset, each with the use case that the RAI specification puts it under, and with
the question that an author who has not stated it should answer. A group lists what a reader of that use
case wants to know: the properties whose home it is, and those that it borrows from other use cases.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """One property of the vocabulary.

    Attributes:
        name: without its prefix.
        home: the id of the group that counts it.
        label: what a reader calls it.
        question: what its author should answer.
    """

    name: str
    home: str
    label: str
    question: str


@dataclass(frozen=True)
class Group:
    """One use case.

    Attributes:
        id: stable; the key in JSON.
        title: what a reader calls it.
        borrowed: properties that it shares with the use case that counts them.
    """

    id: str
    title: str
    borrowed: tuple[str, ...] = ()


GROUPS = (
    Group(
        "life_cycle",
        "The data life cycle",
        borrowed=("dataLimitations", "dataUseCases", "dataReleaseMaintenancePlan"),
    ),
    Group("labelling", "Data labelling"),
    Group(
        "participatory",
        "Participatory data",
        borrowed=("dataAnnotationPlatform", "annotatorDemographics"),
    ),
    Group(
        "safety",
        "AI safety and fairness",
        borrowed=("personalSensitiveInformation",),
    ),
    Group(
        "compliance",
        "Regulatory compliance",
        borrowed=(
            "dataUseCases",
            "dataLimitations",
            "dataCollection",
            "dataCollectionType",
            "dataCollectionTimeframe",
            "dataAnnotationProtocol",
            "dataAnnotationPlatform",
            "dataAnnotationAnalysis",
        ),
    ),
    Group("inclusion", "Inclusion", borrowed=("annotatorDemographics",)),
)

TERMS = (
    Term(
        "dataCollection",
        "life_cycle",
        "How the data were collected",
        "How were the data collected: by whom, from where, and by what procedure?",
    ),
    Term(
        "dataCollectionType",
        "life_cycle",
        "Kind of collection",
        "Which kinds of collection were used, such as surveys, web scraping or direct measurement?",
    ),
    Term(
        "dataCollectionMissingData",
        "life_cycle",
        "Missing data",
        "What is missing from the data, how is it marked, and why is it missing?",
    ),
    Term(
        "dataCollectionRawData",
        "life_cycle",
        "Raw data",
        "What were the raw data, and can they still be had?",
    ),
    Term(
        "dataCollectionTimeframe",
        "life_cycle",
        "Time of collection",
        "When did the collection begin and end (as an ISO 8601 interval, such as 2020-03/2022-11)?",
    ),
    Term(
        "dataPreprocessingProtocol",
        "life_cycle",
        "Preprocessing",
        "Which steps turned what was collected into what is published?",
    ),
    Term(
        "dataAnnotationProtocol",
        "labelling",
        "How labels were made",
        "Who or what made the labels, following which instructions?",
    ),
    Term(
        "dataAnnotationPlatform",
        "labelling",
        "Labelling platform",
        "On which platform, or with which tool, did people label the data?",
    ),
    Term(
        "dataAnnotationAnalysis",
        "labelling",
        "Analysis of labels",
        "How far do annotators agree, and how did their answers become the labels that are published?",
    ),
    Term(
        "annotationsPerItem",
        "labelling",
        "Labels per item",
        "How many people labelled each item?",
    ),
    Term(
        "annotatorDemographics",
        "labelling",
        "Who labelled",
        "Who were the annotators: from where, of which ages, genders and languages, how paid?",
    ),
    Term(
        "machineAnnotationTools",
        "labelling",
        "Labelling software",
        "Which software or models labelled the data, in which versions?",
    ),
    Term(
        "dataSocialImpact",
        "safety",
        "Social impact",
        "Whom may use of the data help or harm, and how is harm kept small?",
    ),
    Term(
        "dataBiases",
        "safety",
        "Known biases",
        "Who or what is over- or under-represented in the data, and how do you know?",
    ),
    Term(
        "dataLimitations",
        "safety",
        "Known limitations",
        "What should nobody conclude from these data, and what should nobody use them for?",
    ),
    Term(
        "dataUseCases",
        "safety",
        "Intended use",
        "What are the data meant for: training, testing, validation, which tasks?",
    ),
    Term(
        "dataImputationProtocol",
        "compliance",
        "Imputation",
        "Which values were filled in rather than observed, and by which method?",
    ),
    Term(
        "dataManipulationProtocol",
        "compliance",
        "Manipulation",
        "How else were values changed after collection, for example by anonymisation or augmentation?",
    ),
    Term(
        "dataReleaseMaintenancePlan",
        "compliance",
        "Maintenance plan",
        "Who maintains the data, how often are they updated, and what happens to old versions?",
    ),
    Term(
        "personalSensitiveInformation",
        "compliance",
        "Personal and sensitive information",
        "Which personal or sensitive attributes do the data hold, or how was it found that they hold none?",
    ),
)
BY_NAME = {term.name: term for term in TERMS}
