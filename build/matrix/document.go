package matrix

// A matrixDocument is matrix.yaml as written: the decoder, the JSON Schema and docs/matrix.md all
// follow these types. A key without omitempty is required. At is where a mapping starts; it is
// not set if an optional mapping is absent.
type matrixDocument struct {
	Version      formatVersion        `json:"version" jsonschema_description:"Version of this format; always 1."`
	Repository   value[repository]    `json:"repository" jsonschema_description:"Where the images are published, without a tag."`
	Images       []image              `json:"images,omitempty" jsonschema_description:"Images written out one by one; they come before those of the axes."`
	Axes         axes                 `json:"axes,omitempty" jsonschema_description:"Every Ubuntu with every CUDA is one image, for all platforms."`
	Base         base                 `json:"base,omitempty" jsonschema_description:"Base image of the axes' images; {cuda} and {ubuntu} are filled in."`
	Tag          value[tagTemplate]   `json:"tag,omitempty" jsonschema_description:"Tag of the axes' images. {cuda}, {ubuntu} and component names are filled in; it ends in -{recipe}, the recipe's hash, before which a variant puts its name."`
	Moving       []value[tagTemplate] `json:"moving,omitempty" jsonschema_description:"Tags without the recipe's hash, which move to the newest image; a variant appends its name."`
	Variants     []variant            `json:"variants,omitempty" jsonschema_description:"Further images beside the plain one of a row."`
	Include      []include            `json:"include,omitempty" jsonschema_description:"Rows beyond the product of the axes. An impossible one is an error."`
	Exclude      []exclude            `json:"exclude,omitempty" jsonschema_description:"Rows of the product that are not wanted, and why."`
	Constraints  []constraint         `json:"constraints,omitempty" jsonschema_description:"Facts about what goes together, each with its reason."`
	Capabilities []capabilityList     `json:"capabilities,omitempty" jsonschema_description:"Compute capabilities to compile for; the first entry that fits the CUDA version feeds every component."`
	Components   components           `json:"components,omitempty" jsonschema_description:"What goes into the axes' images, in this order. Each has one version, or choices of which the first that fits is taken."`
}

type image struct {
	At         Pos                  `json:"-"`
	Name       value[name]          `json:"name" jsonschema_description:"Name of the target."`
	Distro     value[distribution]  `json:"distro" jsonschema_description:"Distribution of the base."`
	Release    value[name]          `json:"release" jsonschema_description:"Its release, as in 12 or 22.04."`
	CUDA       value[cudaVersion]   `json:"cuda,omitempty" jsonschema_description:"CUDA version that the distribution has, for an image whose toolkit is the distribution's."`
	Compile    []value[capability]  `json:"compile,omitempty" jsonschema:"uniqueItems=true" jsonschema_description:"Compute capabilities to compile for, ascending, instead of those under capabilities."`
	Base       base                 `json:"base" jsonschema_description:"What the image starts from."`
	Platforms  []value[platform]    `json:"platforms" jsonschema_description:"Platforms to build for."`
	Tag        value[tagTemplate]   `json:"tag" jsonschema_description:"Tag; {name}, {release} and component names are filled in; it ends in -{recipe}."`
	Moving     []value[tagTemplate] `json:"moving,omitempty" jsonschema_description:"Tags without the recipe's hash."`
	Components components           `json:"components" jsonschema_description:"What goes into the image, in this order."`
}

// A base is what images start from: a mapping, or text alone, which is its image.
type base struct {
	At          Pos                           `json:"-"`
	Image       value[reference]              `json:"image,omitempty" jsonschema_description:"A base image with its tag; matrix.lock holds the digest."`
	Build       value[reference]              `json:"build,omitempty" jsonschema_description:"The image with compilers and headers on which components are compiled, where the base has none; the C library in it is no newer than the base's."`
	Has         named[name, value[inTheBase]] `json:"has,omitempty" jsonschema_description:"What the base image has already, by component, cuda or mpi: its version, or its path, which the gate checks."`
	Debootstrap debootstrap                   `json:"debootstrap,omitempty" jsonschema_description:"A base made from a Debian archive."`
}

type debootstrap struct {
	At      Pos              `json:"-"`
	Suite   value[suite]     `json:"suite" jsonschema_description:"Code name of the release."`
	Variant value[bootstrap] `json:"variant" jsonschema_description:"debootstrap's own word for the set of packages."`
}

type axes struct {
	At        Pos                  `json:"-"`
	Ubuntu    []value[ubuntu]      `json:"ubuntu" jsonschema:"uniqueItems=true" jsonschema_description:"Ubuntu releases, in quotes."`
	CUDA      []value[cudaVersion] `json:"cuda" jsonschema:"uniqueItems=true" jsonschema_description:"CUDA versions with all three numbers."`
	Platforms []value[platform]    `json:"platforms" jsonschema:"uniqueItems=true" jsonschema_description:"Platforms of every row."`
}

type variant struct {
	At   Pos         `json:"-"`
	Name value[name] `json:"name" jsonschema_description:"Name of the variant; target and tags carry it as a suffix."`
	When selector    `json:"when,omitempty" jsonschema_description:"Rows that have the variant; without it, all."`
}

type include struct {
	At        Pos                `json:"-"`
	Ubuntu    value[ubuntu]      `json:"ubuntu" jsonschema_description:"Ubuntu release of the row."`
	CUDA      value[cudaVersion] `json:"cuda" jsonschema_description:"CUDA version of the row."`
	Variant   value[name]        `json:"variant,omitempty" jsonschema_description:"A declared variant; without it, the plain image."`
	Platforms []value[platform]  `json:"platforms,omitempty" jsonschema_description:"Platforms of this row; without it, those of the axes."`
}

type exclude struct {
	At      Pos             `json:"-"`
	When    selector        `json:"when" jsonschema_description:"Which rows; all conditions must hold."`
	Because value[sentence] `json:"because" jsonschema_description:"Why they are not wanted."`
}

type constraint struct {
	At      Pos             `json:"-"`
	When    factTest        `json:"when" jsonschema_description:"Where the constraint applies; all conditions must hold."`
	Require factTest        `json:"require" jsonschema_description:"What must hold there; an absent component satisfies every condition."`
	Because value[sentence] `json:"because" jsonschema_description:"Why; every message that names the constraint quotes it."`
	Drop    bool            `json:"drop,omitempty" jsonschema_description:"Leave rows of the product that break it out, rather than refuse the file; only where all conditions are on the axes and variants."`
}

type capabilityList struct {
	At      Pos                 `json:"-"`
	CUDA    condition           `json:"cuda" jsonschema_description:"CUDA versions that the list is for."`
	Compile []value[capability] `json:"compile" jsonschema:"uniqueItems=true" jsonschema_description:"Compute capabilities, ascending."`
}

// A choice is one possible version of a component, or its absence.
type choice struct {
	At      Pos               `json:"-"`
	When    selector          `json:"when,omitempty" jsonschema_description:"Rows that the choice is for; without it, all that are left."`
	Version value[anyVersion] `json:"version,omitempty" jsonschema_description:"The version to put in."`
	Absent  value[sentence]   `json:"absent,omitempty" jsonschema_description:"Instead of a version: why the component is left out."`
}
